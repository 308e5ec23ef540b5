#include "segment.hpp"

#include "layout.hpp"
#include "segment_file.hpp"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace hierring {

int Segment::map(std::size_t nbytes) {
    const int flags = file_ ? MAP_SHARED : MAP_SHARED | MAP_ANONYMOUS;
    void *const at =
        mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, flags, file_ ? file_->fd : -1, 0);
    if (at == MAP_FAILED) {
        return errno;
    }
    data_ = static_cast<std::byte *>(at);
    nbytes_ = nbytes;
    return 0;
}

Segment::~Segment() {
    unlink();
    if (data_ != nullptr) {
        munmap(data_, nbytes_);
    }
}

int Segment::create(std::size_t nbytes, const std::string &directory, bool named,
                    std::shared_ptr<Segment> &made) {
    if (nbytes == 0) {
        return EINVAL;
    }
    std::shared_ptr<Segment> segment(new Segment);
    {
        const std::scoped_lock guard(registry().mutex);
        int fd = -1;
        if (named) {
            if (const int error = open_named(directory, fd, segment->path_)) {
                return error;
            }
            segment->must_unlink_ = true;
        } else if ((fd = open_nameless(directory)) < 0) {
            return errno;
        }
        struct stat status = {};
        // fchmod: the umask may have taken bits away.
        if (fstat(fd, &status) != 0 || fchmod(fd, 0600) != 0 ||
            ftruncate(fd, static_cast<off_t>(nbytes)) != 0) {
            const int error = errno;
            close(fd);
            if (named) {
                ::unlink(segment->path_.c_str());
                segment->must_unlink_ = false;
            }
            return error;
        }
        segment->file_ = registry().adopt(fd, status);
        if (!named) {
            segment->path_ = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd);
        }
    }
    if (const int error = segment->map(nbytes)) {
        return error;
    }
    made = std::move(segment);
    return 0;
}

namespace {

// Opens a peer's file, or finds it open; 0 or an errno. The mutex of the registry is held.
int open_peers(const std::string &path, std::size_t nbytes, std::shared_ptr<File> &file) {
    struct stat status = {};
    if (stat(path.c_str(), &status) != 0) {
        return errno;
    }
    file = registry().find(id_of(status));
    if (file == nullptr) {
        const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
        if (fd < 0) {
            return errno;
        }
        if (fstat(fd, &status) != 0) {
            const int error = errno;
            close(fd);
            return error;
        }
        // The path may have come to mean a file that we have open already; then this descriptor is
        // leaked, for closing it would drop our locks on it.
        file = registry().find(id_of(status));
        if (file == nullptr) {
            file = registry().adopt(fd, status);
        }
    }
    const bool ours = S_ISREG(status.st_mode) && status.st_uid == geteuid() &&
                      static_cast<std::size_t>(status.st_size) == nbytes && nbytes > 0;
    return ours ? 0 : EINVAL;
}

} // namespace

int Segment::attach(const std::string &path, std::size_t nbytes, std::shared_ptr<Segment> &made) {
    std::shared_ptr<Segment> segment(new Segment);
    int error = 0;
    {
        const std::scoped_lock guard(registry().mutex);
        error = open_peers(path, nbytes, segment->file_);
    }
    segment->path_ = path;
    if (error == 0) {
        error = segment->map(nbytes);
    }
    if (error == 0) {
        made = std::move(segment);
    }
    return error;
}

int Segment::make_private(std::size_t nbytes, std::shared_ptr<Segment> &made) {
    if (nbytes == 0) {
        return EINVAL;
    }
    std::shared_ptr<Segment> segment(new Segment);
    if (const int error = segment->map(nbytes)) {
        return error;
    }
    made = std::move(segment);
    return 0;
}

int Segment::unlink() noexcept {
    if (!must_unlink_ || generation_ != fork_generation()) {
        return 0;
    }
    must_unlink_ = false;
    struct stat named = {};
    if (lstat(path_.c_str(), &named) != 0 || id_of(named) != file_->id) {
        return 0; // somebody was faster
    }
    return ::unlink(path_.c_str()) == 0 || errno == ENOENT ? 0 : errno;
}

int Segment::reserve(std::size_t offset, std::size_t nbytes) noexcept {
    if (offset > nbytes_ || nbytes > nbytes_ - offset) {
        return EINVAL;
    }
    if (nbytes == 0) {
        return 0;
    }
    if (file_) {
        int error;
        do {
            error =
                posix_fallocate(file_->fd, static_cast<off_t>(offset), static_cast<off_t>(nbytes));
        } while (error == EINTR);
        if (error != 0) {
            return error;
        }
    }
    // A write that changes nothing, atomic since a peer may already be at work on the same page.
    const auto touch = [this](std::size_t at) {
        std::atomic_ref<std::uint8_t>(reinterpret_cast<std::uint8_t &>(data_[at]))
            .fetch_or(0, std::memory_order_relaxed);
    };
    touch(offset);
    for (std::size_t at = round_up(offset + 1, kPage); at < offset + nbytes; at += kPage) {
        touch(at);
    }
    return 0;
}

int Segment::lock(unsigned local_rank) noexcept {
    if (!file_) {
        return 0;
    }
    const std::scoped_lock guard(registry().mutex);
    const int error = try_lock(file_->fd, local_rank, 1);
    if (error == 0) {
        file_->held.insert(local_rank);
    }
    return error;
}

bool Segment::alive(unsigned local_rank) const noexcept {
    if (!file_) {
        return true;
    }
    if (file_->generation == fork_generation()) {
        // F_GETLK is silent about the locks of the asking process.
        const std::scoped_lock guard(registry().mutex);
        if (file_->held.contains(local_rank)) {
            return true;
        }
    }
    struct flock request = write_lock(local_rank, 1);
    return fcntl(file_->fd, F_GETLK, &request) != 0 || request.l_type != F_UNLCK;
}

namespace {

// Unlinks one file if it is an abandoned segment of ours. The mutex of the registry is held.
bool sweep_one(int directory, const char *name) {
    struct stat before = {}, now = {};
    if (fstatat(directory, name, &before, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(before.st_mode) ||
        before.st_uid != geteuid() || registry().contains(id_of(before))) {
        return false;
    }
    const int fd = openat(directory, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        return false;
    }
    // The lock over the whole file fails if its maker or any rank holds one; while we hold it, a
    // maker that was about to lock is refused and takes another name.
    const bool gone = try_lock(fd, 0, 0) == 0 && fstat(fd, &now) == 0 &&
                      id_of(now) == id_of(before) && unlinkat(directory, name, 0) == 0;
    close(fd);
    return gone;
}

} // namespace

int sweep(const std::string &directory) noexcept {
    DIR *const listing = opendir(directory.c_str());
    if (listing == nullptr) {
        return -errno;
    }
    int count = 0;
    const std::scoped_lock guard(registry().mutex);
    while (const dirent *entry = readdir(listing)) {
        if (is_segment_name(entry->d_name)) {
            count += sweep_one(dirfd(listing), entry->d_name) ? 1 : 0;
        }
    }
    closedir(listing);
    return count;
}

} // namespace hierring
