// Files of segments: one descriptor per file and process, record locks, random names.
//
// Why one descriptor: see segment.hpp.
#pragma once

#include "segment.hpp"

#include <atomic>
#include <fcntl.h>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <utility>

namespace hierring {

using FileId = std::pair<dev_t, ino_t>;

inline FileId id_of(const struct stat &status) { return {status.st_dev, status.st_ino}; }

// The one descriptor of a file in this process, and the ranks whose locks this process holds.
class File {
  public:
    File(int fd, FileId id) : fd(fd), id(id) {}
    File(const File &) = delete;
    File &operator=(const File &) = delete;

    // Closing drops the locks of this process on the file, which are ours: a forked child has none.
    ~File();

    const int fd;
    const FileId id;
    const unsigned generation = fork_generation();
    std::set<unsigned> held; // guarded by the registry's mutex
};

// The files open in this process. `mutex` also keeps opening and closing apart, because an open of
// a registered file would have to be followed by a close.
struct Registry {
    std::mutex mutex;
    std::map<FileId, std::weak_ptr<File>> files;
    std::atomic<unsigned> generation{0}; // see fork_generation()

    Registry();

    // The open file with this id, or null. The mutex is held; the caller must not drop the result
    // before it lets go of the mutex, for ~File takes it.
    std::shared_ptr<File> find(FileId id);

    // Whether a file with this id is open. The mutex is held.
    bool contains(FileId id) const;

    // Takes a new descriptor in. The mutex is held.
    std::shared_ptr<File> adopt(int fd, const struct stat &status);
};

// The registry of this process.
Registry &registry();

// A request for a write lock on [start, start + length); length 0 reaches to the end of all files.
struct flock write_lock(off_t start, off_t length);

// Tries to take a write lock; 0 or an errno.
int try_lock(int fd, off_t start, off_t length);

// Opens a new file without a name; its descriptor, or -1 with errno.
int open_nameless(const std::string &directory);

// Opens a new file under a random name and locks it; 0 or an errno.
int open_named(const std::string &directory, int &fd, std::string &path);

// Tells whether open_named() may have made up this name.
bool is_segment_name(std::string_view name);

} // namespace hierring
