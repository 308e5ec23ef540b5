#include "shared_buffer.hpp"

#include "layout.hpp"
#include "shared_file.hpp"

#include <cerrno>
#include <cstring>
#include <deque>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace hierring {

// The buffers of this process by their first address, and the ids that are gone.
//
// Nobody may drop the last hold on a buffer with the mutex held, for ~SharedBuffer takes it.
class SharedRegistry {
  public:
    struct Entry {
        SharedBuffer *buffer;               // compared and, under the mutex, read
        std::weak_ptr<SharedBuffer> found;  // what a look-up hands out
        std::shared_ptr<SharedBuffer> kept; // the registry's own hold on adopted memory
    };

    std::mutex mutex;
    std::map<std::uintptr_t, Entry> entries;
    std::deque<std::uint64_t> gone;
    std::atomic<std::size_t> count{0};    // of entries; written under the mutex, read without
    std::atomic<std::uint64_t> serial{0}; // ids gone ever; written under the mutex, read without

    // A fork happens with the mutex held, so that the child finds it in a state it can release.
    SharedRegistry();

    // Notes that peers who mapped this id may let go. The mutex is held.
    void note_gone(SharedBuffer &buffer) noexcept;

    // Takes a buffer in. Whatever was known in its address range is gone, for it is mapped now.
    void insert(const std::shared_ptr<SharedBuffer> &buffer);

    // Takes a buffer out if it is in; what the registry held of it. The mutex is held.
    std::shared_ptr<SharedBuffer> erase(const SharedBuffer *buffer) noexcept;
};

namespace {

// The registry of this process. Never destroyed: arrays may outlive the statics of this library.
SharedRegistry &shared_registry() {
    static auto *const the_one = new SharedRegistry;
    return *the_one;
}

std::uintptr_t address_of(const std::byte *at) { return reinterpret_cast<std::uintptr_t>(at); }

} // namespace

SharedRegistry::SharedRegistry() {
    pthread_atfork([] { shared_registry().mutex.lock(); }, [] { shared_registry().mutex.unlock(); },
                   [] { shared_registry().mutex.unlock(); });
}

void SharedRegistry::note_gone(SharedBuffer &buffer) noexcept {
    if (!buffer.told_) {
        return;
    }
    buffer.told_ = false;
    gone.push_back(buffer.identity_.id);
    if (gone.size() > kGoneKept) {
        gone.pop_front();
    }
    serial.fetch_add(1, std::memory_order_release);
}

void SharedRegistry::insert(const std::shared_ptr<SharedBuffer> &buffer) {
    std::vector<std::shared_ptr<SharedBuffer>> stale; // dropped after the mutex
    const std::scoped_lock guard(mutex);
    const std::uintptr_t first = address_of(buffer->data_), end = first + buffer->nbytes_;
    auto at = entries.lower_bound(first);
    while (at != entries.begin() &&
           std::prev(at)->first + std::prev(at)->second.buffer->nbytes_ > first) {
        --at;
    }
    while (at != entries.end() && at->first < end) {
        const SharedBuffer *const old = (at++)->second.buffer;
        stale.push_back(erase(old));
    }
    entries[first] = {buffer.get(), buffer, buffer->adopted_ ? buffer : nullptr};
    count.store(entries.size(), std::memory_order_release);
}

std::shared_ptr<SharedBuffer> SharedRegistry::erase(const SharedBuffer *buffer) noexcept {
    const auto found = entries.find(address_of(buffer->data_));
    if (found == entries.end() || found->second.buffer != buffer) {
        return nullptr;
    }
    note_gone(*found->second.buffer);
    auto kept = std::move(found->second.kept);
    entries.erase(found);
    count.store(entries.size(), std::memory_order_release);
    return kept;
}

int SharedBuffer::create(std::size_t nbytes, std::shared_ptr<SharedBuffer> &made) {
    SharedRegistry &registry = shared_registry();
    if (!descriptor_for(shared_count())) {
        return EMFILE;
    }
    std::shared_ptr<SharedBuffer> buffer(new SharedBuffer);
    if (const int error = make_shared_file(nbytes, buffer->identity_)) {
        return error;
    }
    buffer->nbytes_ = buffer->identity_.nbytes;
    buffer->data_ = map_shared_file(buffer->identity_.fd, buffer->nbytes_);
    if (buffer->data_ == nullptr) {
        return errno;
    }
    registry.insert(buffer);
    made = std::move(buffer);
    return 0;
}

int SharedBuffer::adopt(std::byte *data, std::size_t nbytes, int fd,
                        std::shared_ptr<SharedBuffer> &made) {
    SharedRegistry &registry = shared_registry();
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    if (nbytes == 0 || address_of(data) % page != 0) {
        return EINVAL;
    }
    if (!descriptor_for(shared_count())) {
        return EMFILE;
    }
    std::shared_ptr<SharedBuffer> buffer(new SharedBuffer);
    buffer->adopted_ = true;
    buffer->data_ = data;
    buffer->nbytes_ = round_up(nbytes, page);
    buffer->identity_.fd = fd;
    {
        const std::scoped_lock guard(registry.mutex);
        if (const int error = buffer->replace()) {
            return error;
        }
    }
    registry.insert(buffer);
    made = std::move(buffer);
    return 0;
}

// Out of the registry before the mapping goes: afterwards any thread may be given these addresses.
SharedBuffer::~SharedBuffer() {
    {
        const std::scoped_lock guard(shared_registry().mutex);
        shared_registry().erase(this); // holds nothing: adopted ones come here after erase()
    }
    if (adopted_) {
        return;
    }
    if (data_ != nullptr) {
        munmap(data_, nbytes_);
    }
    if (identity_.fd >= 0) {
        close(identity_.fd);
    }
}

SharedIdentity SharedBuffer::identity() const noexcept {
    const std::scoped_lock guard(shared_registry().mutex);
    return identity_;
}

// The owner of adopted memory closes its descriptor before it unmaps, and nobody else has a
// descriptor of this file under this number. So as long as the number leads to the file, the
// mapping stands.
bool SharedBuffer::stands() const noexcept {
    if (generation_ != fork_generation()) {
        return false;
    }
    if (!adopted_) {
        return true;
    }
    struct stat status = {};
    return fstat(identity_.fd, &status) == 0 && status.st_dev == identity_.device &&
           status.st_ino == identity_.inode;
}

int SharedBuffer::renew() noexcept {
    const std::scoped_lock guard(shared_registry().mutex);
    if (!stands()) {
        return ESTALE;
    }
    return replace();
}

// The new pages are filled elsewhere and moved here in one step, so that whoever reads meanwhile
// sees the one or the other, and every failure but that of the last steps leaves all as it was.
int SharedBuffer::replace() noexcept {
    SharedIdentity fresh;
    if (const int error = make_shared_file(nbytes_, fresh)) {
        return error;
    }
    std::byte *const copy = map_shared_file(fresh.fd, nbytes_);
    int error = copy == nullptr ? errno : 0;
    if (error == 0) {
        std::memcpy(copy, data_, nbytes_);
        if (mremap(copy, nbytes_, nbytes_, MREMAP_MAYMOVE | MREMAP_FIXED, data_) == MAP_FAILED) {
            error = errno;
            munmap(copy, nbytes_);
        }
    }
    // The same number, for the owner of adopted memory will close it. It can't fail: both are open.
    if (error == 0 && dup3(fresh.fd, identity_.fd, O_CLOEXEC) < 0) {
        error = errno;
    }
    close(fresh.fd);
    if (error == 0) {
        shared_registry().note_gone(*this);
        fresh.fd = identity_.fd;
        identity_ = fresh;
    }
    return error;
}

std::shared_ptr<SharedBuffer> find_shared(const std::byte *first, std::size_t nbytes) noexcept {
    SharedRegistry &registry = shared_registry();
    if (registry.count.load(std::memory_order_acquire) == 0 || nbytes == 0) {
        return nullptr;
    }
    std::shared_ptr<SharedBuffer> found, stale; // dropped after the mutex
    const std::scoped_lock guard(registry.mutex);
    auto at = registry.entries.upper_bound(address_of(first));
    if (at == registry.entries.begin()) {
        return nullptr;
    }
    --at;
    SharedBuffer &buffer = *at->second.buffer;
    const std::uintptr_t offset = address_of(first) - at->first;
    if (offset >= buffer.nbytes_ || nbytes > buffer.nbytes_ - offset) {
        return nullptr;
    }
    if (!buffer.stands()) {
        if (buffer.adopted_ && buffer.generation_ == fork_generation()) {
            stale = registry.erase(&buffer);
        }
        return nullptr;
    }
    found = at->second.found.lock(); // null if its last holder is on the way to ~SharedBuffer
    if (found) {
        buffer.told_ = true;
    }
    return found;
}

void forget_adopted(std::uint64_t id) noexcept {
    SharedRegistry &registry = shared_registry();
    std::shared_ptr<SharedBuffer> kept; // dropped after the mutex
    const std::scoped_lock guard(registry.mutex);
    for (const auto &[first, entry] : registry.entries) {
        if (entry.buffer->adopted_ && entry.buffer->identity_.id == id) {
            kept = registry.erase(entry.buffer);
            return;
        }
    }
}

std::size_t gone_since(std::uint64_t &serial, std::span<std::uint64_t> ids) noexcept {
    SharedRegistry &registry = shared_registry();
    if (registry.serial.load(std::memory_order_acquire) == serial) {
        return 0;
    }
    const std::scoped_lock guard(registry.mutex);
    const std::uint64_t last = registry.serial.load(std::memory_order_relaxed);
    const std::uint64_t first = last - registry.gone.size();
    serial = serial < first ? first : serial;
    std::size_t count = 0;
    while (serial < last && count < ids.size()) {
        ids[count++] = registry.gone[serial++ - first];
    }
    return count;
}

std::uint64_t gone_serial() noexcept {
    return shared_registry().serial.load(std::memory_order_acquire);
}

std::size_t shared_count() noexcept {
    return shared_registry().count.load(std::memory_order_acquire);
}

} // namespace hierring
