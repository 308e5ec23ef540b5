#include "segment_file.hpp"

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <pthread.h>
#include <sys/random.h>
#include <unistd.h>

namespace hierring {
namespace {

// A named segment: the prefix and 16 hexadecimal digits.
constexpr const char *kPrefix = "hierring-";

// The byte that the maker of a named file locks; the bytes from 0 on are the ranks'.
constexpr off_t kMakerByte = off_t{1} << 40;

} // namespace

File::~File() {
    const std::scoped_lock guard(registry().mutex);
    if (registry().contains(id)) {
        return; // opened anew since the last user let go: leaked, for the sake of the new locks
    }
    registry().files.erase(id);
    close(fd);
}

// A fork happens with the mutex held, so that the child finds it in a state it can release.
Registry::Registry() {
    pthread_atfork([] { registry().mutex.lock(); }, [] { registry().mutex.unlock(); },
                   [] {
                       registry().generation.fetch_add(1, std::memory_order_relaxed);
                       registry().mutex.unlock();
                   });
}

std::shared_ptr<File> Registry::find(FileId id) {
    const auto found = files.find(id);
    return found == files.end() ? nullptr : found->second.lock();
}

bool Registry::contains(FileId id) const {
    const auto found = files.find(id);
    return found != files.end() && !found->second.expired();
}

std::shared_ptr<File> Registry::adopt(int fd, const struct stat &status) {
    auto file = std::make_shared<File>(fd, id_of(status));
    files[file->id] = file;
    return file;
}

// Never destroyed: segments may outlive the statics of this library.
Registry &registry() {
    static auto *const the_one = new Registry;
    return *the_one;
}

unsigned fork_generation() noexcept {
    return registry().generation.load(std::memory_order_relaxed);
}

struct flock write_lock(off_t start, off_t length) {
    struct flock request = {};
    request.l_type = F_WRLCK;
    request.l_whence = SEEK_SET;
    request.l_start = start;
    request.l_len = length;
    return request;
}

int try_lock(int fd, off_t start, off_t length) {
    struct flock request = write_lock(start, length);
    return fcntl(fd, F_SETLK, &request) == 0 ? 0 : errno;
}

int open_nameless(const std::string &directory) {
    return open(directory.c_str(), O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
}

// Between creation and lock a sweep may take the file for an abandoned one; then the lock is
// refused or the name is gone, and another name is tried.
int open_named(const std::string &directory, int &fd, std::string &path) {
    for (int attempt = 0; attempt < 100; ++attempt) {
        std::uint64_t random;
        if (getrandom(&random, sizeof random, 0) != sizeof random) {
            return EIO;
        }
        char name[32];
        std::snprintf(name, sizeof name, "%s%016llx", kPrefix,
                      static_cast<unsigned long long>(random));
        path = directory + "/" + name;
        fd = open(path.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0 && errno != EEXIST) {
            return errno;
        }
        if (fd < 0) {
            continue;
        }
        const int refused = try_lock(fd, kMakerByte, 1);
        struct stat ours = {}, named = {};
        const bool still_there = fstat(fd, &ours) == 0 && lstat(path.c_str(), &named) == 0 &&
                                 id_of(ours) == id_of(named);
        if (refused == 0 && still_there) {
            return 0;
        }
        if (still_there) {
            ::unlink(path.c_str());
        }
        close(fd);
        if (refused != 0 && refused != EAGAIN && refused != EACCES) {
            return refused;
        }
    }
    return EEXIST;
}

bool is_segment_name(std::string_view name) {
    const std::string_view prefix(kPrefix);
    return name.size() == prefix.size() + 16 && name.starts_with(prefix) &&
           name.find_first_not_of("0123456789abcdef", prefix.size()) == std::string_view::npos;
}

} // namespace hierring
