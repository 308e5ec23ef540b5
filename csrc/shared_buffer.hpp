// Memory of this process that its peers on the node can map, for all-reduces without a copy.
//
// Each buffer is one nameless file (memfd), sealed against shrinking and growing, all its pages
// reserved. Its id is part of the file's name, so whoever opens it through /proc can tell that it
// is the buffer it was told about and not a later one under the same descriptor. Nothing has a
// name in a file system, so nothing is left behind, however the process ends.
//
// A registry finds the buffer that holds an address. It knows each buffer for as long as its
// mapping stands and not an instant longer: an address that ordinary memory has taken over must
// never be found. A forked child shares the memory, but nothing made before the fork is found
// there, for a peer would look for it under the parent's process id.
#pragma once

#include "segment.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <sys/types.h>

namespace hierring {

// What a peer needs to map a buffer, and to be sure that it is the right one.
struct SharedIdentity {
    std::uint64_t id = 0; // random, never used twice on this machine; 0 is no buffer
    int fd = -1;          // in the owning process
    dev_t device = 0;
    ino_t inode = 0;
    std::size_t nbytes = 0; // of the file: whole pages
};

// One buffer. Functions that can fail return 0 or an errno.
class SharedBuffer {
  public:
    // Makes a buffer of at least so many bytes, all zero, aligned to a page. ENOMEM if the machine
    // is short of memory, EMFILE beyond half of the limit on open files, EINVAL for 0 bytes.
    static int create(std::size_t nbytes, std::shared_ptr<SharedBuffer> &made);

    // Puts a buffer under memory that somebody else has mapped from `fd`, MAP_SHARED, and will
    // undo by closing `fd` and unmapping [data, data + nbytes), in this order (as torch does with
    // a storage in shared memory). The content stays. From then on `fd` is the buffer's file. The
    // registry holds the buffer until forget_adopted() or until it sees that `fd` was closed.
    static int adopt(std::byte *data, std::size_t nbytes, int fd,
                     std::shared_ptr<SharedBuffer> &made);

    SharedBuffer(const SharedBuffer &) = delete;
    SharedBuffer &operator=(const SharedBuffer &) = delete;

    // Leaves the registry; then, unless adopted, unmaps and closes.
    ~SharedBuffer();

    std::byte *data() const noexcept { return data_; }
    std::size_t nbytes() const noexcept { return nbytes_; } // whole pages
    SharedIdentity identity() const noexcept;
    std::uint64_t id() const noexcept { return identity().id; }
    int fd() const noexcept { return identity().fd; }
    dev_t device() const noexcept { return identity().device; }
    ino_t inode() const noexcept { return identity().inode; }

    // Puts fresh pages under the same addresses: a new file with a new id and the same content,
    // under the same descriptor number. Peers that mapped the old file keep it and write nowhere.
    // Nobody else may write here meanwhile. ESTALE in a forked child and for memory that its
    // owner has given up. After a failure the old file is still in place.
    int renew() noexcept;

  private:
    friend class SharedRegistry;
    friend std::shared_ptr<SharedBuffer> find_shared(const std::byte *, std::size_t) noexcept;
    friend void forget_adopted(std::uint64_t) noexcept;
    SharedBuffer() = default;
    int replace() noexcept;
    bool stands() const noexcept;

    std::byte *data_ = nullptr;
    std::size_t nbytes_ = 0;
    bool adopted_ = false;
    unsigned generation_ = fork_generation();
    SharedIdentity identity_; // guarded by the registry's mutex
    bool told_ = false;       // guarded: this id was handed out by find_shared()
};

// A peer's buffer as mapped here; unmapped with the object. Stays valid memory after the peer has
// freed it or died.
class PeerBuffer {
  public:
    PeerBuffer(const PeerBuffer &) = delete;
    PeerBuffer &operator=(const PeerBuffer &) = delete;
    ~PeerBuffer();

    std::byte *data() const noexcept { return data_; }
    std::size_t nbytes() const noexcept { return nbytes_; }

  private:
    PeerBuffer(std::byte *data, std::size_t nbytes) : data_(data), nbytes_(nbytes) {}
    friend int map_peer(pid_t, const SharedIdentity &, std::shared_ptr<PeerBuffer> &);

    std::byte *data_;
    std::size_t nbytes_;
};

// The buffer that holds all of [first, first + nbytes), or null; null in a forked child for what
// was made before the fork, and for no bytes. Its id counts as told to peers. Thread safe. One
// load where the process has no buffer; else a mutex, and a system call for adopted memory.
std::shared_ptr<SharedBuffer> find_shared(const std::byte *first, std::size_t nbytes) noexcept;

// Removes the adopted buffer with this id, whose owner is about to give the memory up. Any other
// id is ignored.
void forget_adopted(std::uint64_t id) noexcept;

// Writes ids that were told and are gone (freed or renewed) since `serial`, oldest first, as many
// as fit, and moves `serial` past them; returns their number. One load where there is nothing new.
// A reader starts at gone_serial(). The last kGoneKept ids are kept; a reader that is farther
// behind misses some, which costs its peers the address space until they close.
inline constexpr std::size_t kGoneKept = 65536;
std::size_t gone_since(std::uint64_t &serial, std::span<std::uint64_t> ids) noexcept;
std::uint64_t gone_serial() noexcept;

// The number of buffers of this process, adopted ones included.
std::size_t shared_count() noexcept;

// Opens and maps the buffer of a process on this machine. ESTALE if the descriptor leads to
// another file by now; or what the system says (EACCES, ENOENT, ENOMEM ...).
int map_peer(pid_t pid, const SharedIdentity &identity, std::shared_ptr<PeerBuffer> &made);

} // namespace hierring
