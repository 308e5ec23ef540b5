// The mapped memory of a node, and the locks that tell which of its ranks live.
//
// POSIX record locks belong to a process and a file, and a process loses all its locks on a file
// when it closes *any* descriptor of it. So a process keeps exactly one descriptor per file: a
// registry hands the same File to whoever opens it again, and nothing here opens a file that is in
// the registry. Record locks are the right kind nevertheless: unlike flock's they are not inherited
// by fork, so that a child which outlives its rank does not keep it alive.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace hierring {

// Counts the forks that led to this process since the library was loaded; an object that remembers
// the number it was made under knows whether it is in another process now. No system call.
unsigned fork_generation() noexcept;

class File;

// One mapping, shared by all who use it and undone after the last of them. Functions that can fail
// return 0 or an errno.
class Segment {
  public:
    // Makes a file without a name in the directory (O_TMPFILE), or with a random name which this
    // process locks. All zero, mode 0600, no page reserved.
    static int create(std::size_t nbytes, const std::string &directory, bool named,
                      std::shared_ptr<Segment> &made);

    // Maps a file that a peer made. EINVAL if it is no regular file of this user and size.
    static int attach(const std::string &path, std::size_t nbytes, std::shared_ptr<Segment> &made);

    // Maps memory of this process alone.
    static int make_private(std::size_t nbytes, std::shared_ptr<Segment> &made);

    Segment(const Segment &) = delete;
    Segment &operator=(const Segment &) = delete;

    // Unmaps; where this very process made a name that still stands, removes it.
    ~Segment();

    std::byte *data() const noexcept { return data_; }
    std::size_t nbytes() const noexcept { return nbytes_; }
    const std::string &path() const noexcept { return path_; }

    // Removes the name if this process made one. Once more is fine.
    int unlink() noexcept;

    // Reserves the blocks of a range and touches each page, content unchanged. ENOSPC if the file
    // system is full, EINVAL outside the segment.
    int reserve(std::size_t offset, std::size_t nbytes) noexcept;

    // Takes this rank's liveness lock, for as long as the process lives and the file is open.
    // EAGAIN if another process has it. Once more is fine.
    int lock(unsigned local_rank) noexcept;

    // Tells whether a process holds the rank's liveness lock; this one counts. Also true where
    // there is no way to know: nobody is declared dead on a failing system call.
    bool alive(unsigned local_rank) const noexcept;

  private:
    Segment() = default;
    int map(std::size_t nbytes);

    std::shared_ptr<File> file_; // null if private
    std::byte *data_ = nullptr;
    std::size_t nbytes_ = 0;
    std::string path_;
    bool must_unlink_ = false;
    unsigned generation_ = fork_generation();
};

// Unlinks the named segments of this user in the directory that no process has a lock on; returns
// their number, or minus an errno if the directory cannot be read.
int sweep(const std::string &directory) noexcept;

} // namespace hierring
