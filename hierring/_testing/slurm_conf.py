"""The configuration of a SLURM that lives in one directory, on the nodes of a virtual cluster."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hierring.launch.cluster import Node
from hierring.launch.cluster.spec import HEAD_ADDRESS

__all__ = ["write_configuration"]

# Jobs are scheduled at once, instead of every few seconds.
_SLURM_CONF: Final = """\
ClusterName=rehearsal
SlurmctldHost=head({head})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldSyslogDebug=quiet
SlurmdSyslogDebug=quiet
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
SchedulerParameters=batch_sched_delay=0,sched_min_interval=0,sched_interval=1,bf_interval=1
KillWait={kill_wait_s}
GresTypes=gpu
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
_NODE: Final = (
    "NodeName={name} NodeAddr={address} CPUs={cpus} Sockets=1 CoresPerSocket={cpus} "
    "ThreadsPerCore=1 RealMemory=2000 Gres=gpu:2"
)
_CGROUP_CONF: Final = "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n"
# Pretended GPUs. A device file is only looked for, never opened.
_GRES_CONF: Final = "Name=gpu File=/dev/zero\nName=gpu File=/dev/full\n"


def write_configuration(folder: Path, nodes: Sequence[Node], cpus: int, kill_wait_s: int) -> None:
    """Write all that the daemons read, the key of munge included.

    Args:
        folder: where; every node must see it under this name.
        cpus: how many each node pretends to have.
        kill_wait_s: from SIGTERM to SIGKILL at the end of a job.
    """
    folder.chmod(0o755)
    key = folder / "munge.key"
    key.touch(mode=0o600)  # munged refuses a key that others can read
    key.write_bytes(os.urandom(128))
    (folder / "state").mkdir()
    text = _SLURM_CONF.format(
        head=HEAD_ADDRESS,
        folder=folder,
        kill_wait_s=kill_wait_s,
        nodes="\n".join(
            _NODE.format(name=node.name, address=node.address, cpus=cpus) for node in nodes
        ),
    )
    (folder / "slurm.conf").write_text(text)
    (folder / "cgroup.conf").write_text(_CGROUP_CONF)
    (folder / "gres.conf").write_text(_GRES_CONF)
