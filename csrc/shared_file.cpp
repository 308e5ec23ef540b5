#include "shared_file.hpp"

#include "layout.hpp"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <fstream>
#include <limits>
#include <string>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace hierring {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW;

// The name of the file with this id, as memfd_create() takes it. lsof and /proc/PID/maps show it.
std::string name_of(std::uint64_t id) {
    char name[64];
    std::snprintf(name, sizeof name, "hierring-buffer-%016llx",
                  static_cast<unsigned long long>(id));
    return name;
}

// Sizes and seals a new file and reserves its pages; 0 or an errno.
int fill(int fd, std::size_t nbytes) {
    if (ftruncate(fd, static_cast<off_t>(nbytes)) != 0) {
        return errno;
    }
    while (fallocate(fd, 0, 0, static_cast<off_t>(nbytes)) != 0) {
        if (errno != EINTR) {
            return errno == ENOSPC ? ENOMEM : errno;
        }
    }
    return fcntl(fd, F_ADD_SEALS, kSeals | F_SEAL_SEAL) == 0 ? 0 : errno;
}

// The number in the first line of a file, or `otherwise` where there is none ("max").
std::size_t number_in(const std::string &path, std::size_t otherwise) {
    std::ifstream file(path);
    std::size_t number = 0;
    return file >> number ? number : otherwise;
}

// Bytes that the kernel believes it can still hand out.
std::size_t available_bytes() {
    std::ifstream file("/proc/meminfo");
    std::string word;
    std::size_t total = 0, kib = 0;
    while (file >> word) {
        if ((word == "MemAvailable:" || word == "SwapFree:") && file >> kib) {
            total += kib * 1024;
        }
    }
    return total != 0 ? total : std::numeric_limits<std::size_t>::max();
}

} // namespace

// fallocate() would take every page of the machine before it says that there are too few.
bool memory_for(std::size_t nbytes) {
    if (nbytes > available_bytes()) {
        return false;
    }
    std::ifstream file("/proc/self/cgroup");
    std::string line;
    constexpr auto kNone = std::numeric_limits<std::size_t>::max();
    while (std::getline(file, line)) {
        if (!line.starts_with("0::/")) {
            continue; // version 1: not looked at
        }
        // Each group up to the root has a limit of its own.
        for (std::string group = line.substr(3); group.size() > 1;
             group.erase(group.find_last_of('/'))) {
            const std::string at = "/sys/fs/cgroup" + group;
            const std::size_t limit = number_in(at + "/memory.max", kNone);
            const std::size_t used = number_in(at + "/memory.current", 0);
            // Page cache counts as used, and gives way. So only what can never fit is refused.
            if (limit != kNone && nbytes > limit && used != 0) {
                return false;
            }
        }
    }
    return true;
}

bool descriptor_for(std::size_t used) noexcept {
    struct rlimit limit = {};
    return getrlimit(RLIMIT_NOFILE, &limit) != 0 || used < limit.rlim_cur / 2;
}

int make_shared_file(std::size_t nbytes, SharedIdentity &identity) {
    constexpr std::size_t kMost = std::size_t{1} << 62;
    if (nbytes == 0) {
        return EINVAL;
    }
    if (nbytes > kMost || !memory_for(nbytes)) {
        return ENOMEM;
    }
    SharedIdentity made;
    made.nbytes = round_up(nbytes, static_cast<std::size_t>(sysconf(_SC_PAGESIZE)));
    while (made.id == 0) {
        if (getrandom(&made.id, sizeof made.id, 0) != sizeof made.id) {
            return EIO;
        }
    }
    made.fd = memfd_create(name_of(made.id).c_str(), MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (made.fd < 0) {
        return errno;
    }
    struct stat status = {};
    int error = fstat(made.fd, &status) == 0 ? 0 : errno;
    if (error == 0) {
        error = fill(made.fd, made.nbytes);
    }
    if (error != 0) {
        close(made.fd);
        return error;
    }
    made.device = status.st_dev;
    made.inode = status.st_ino;
    identity = made;
    return 0;
}

// MAP_POPULATE: the pages are there, and one call is cheaper than a fault for each.
std::byte *map_shared_file(int fd, std::size_t nbytes) {
    void *const at =
        mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, 0);
    return at == MAP_FAILED ? nullptr : static_cast<std::byte *>(at);
}

bool is_shared_file(int fd, const SharedIdentity &identity) {
    struct stat status = {};
    if (fstat(fd, &status) != 0 || status.st_dev != identity.device ||
        status.st_ino != identity.inode ||
        static_cast<std::size_t>(status.st_size) != identity.nbytes) {
        return false;
    }
    char target[128];
    const std::string self = "/proc/self/fd/" + std::to_string(fd);
    const ssize_t length = readlink(self.c_str(), target, sizeof target);
    return length > 0 && std::string(target, static_cast<std::size_t>(length)) ==
                             "/memfd:" + name_of(identity.id) + " (deleted)";
}

// The path is opened as a mere place first (O_PATH). To open whatever lies there could have
// effects (a device, a pipe), and closing a segment's file would drop this process' locks on it;
// an O_PATH descriptor has none of that, and what is opened through it is what was looked at.
int map_peer(pid_t pid, const SharedIdentity &identity, std::shared_ptr<PeerBuffer> &made) {
    const std::string path = "/proc/" + std::to_string(pid) + "/fd/" + std::to_string(identity.fd);
    const int place = open(path.c_str(), O_PATH | O_CLOEXEC);
    if (place < 0) {
        return errno;
    }
    if (identity.id == 0 || identity.nbytes == 0 || !is_shared_file(place, identity)) {
        close(place);
        return ESTALE;
    }
    const int fd =
        open(("/proc/self/fd/" + std::to_string(place)).c_str(), O_RDWR | O_CLOEXEC | O_NOCTTY);
    int error = fd < 0 ? errno : 0;
    close(place);
    if (error != 0) {
        return error;
    }
    std::byte *data = nullptr;
    if ((fcntl(fd, F_GET_SEALS) & kSeals) != kSeals) {
        error = ESTALE;
    } else if ((data = map_shared_file(fd, identity.nbytes)) == nullptr) {
        error = errno;
    }
    close(fd);
    if (error == 0) {
        made.reset(new PeerBuffer(data, identity.nbytes));
    }
    return error;
}

PeerBuffer::~PeerBuffer() { munmap(data_, nbytes_); }

} // namespace hierring
