// The file of a shared buffer: made, recognised, and mapped.
#pragma once

#include "shared_buffer.hpp"

#include <string>

namespace hierring {

// Makes a file of whole pages with a new id, all pages reserved, sealed; 0 or an errno. The caller
// closes identity.fd.
int make_shared_file(std::size_t nbytes, SharedIdentity &identity);

// Maps a whole file anywhere and touches its pages; null with errno.
std::byte *map_shared_file(int fd, std::size_t nbytes);

// Whether `fd` is the file of this identity, and sealed so that its pages can't go.
bool is_shared_file(int fd, const SharedIdentity &identity);

// Whether so many more bytes fit into this machine, and into the control groups of this process;
// true where there is no way to know.
bool memory_for(std::size_t nbytes);

// Whether one more descriptor beside `used` ones keeps to half of the limit on open files.
bool descriptor_for(std::size_t used) noexcept;

} // namespace hierring
