// Shared buffers: found by address while they stand, mapped by a peer, renewed, gone.
#include "check.hpp"
#include "shared_buffer.hpp"

#include <cerrno>
#include <cstdint>
#include <memory>
#include <span>
#include <sys/wait.h>
#include <unistd.h>

using namespace hierring;

namespace {

std::byte value(std::size_t i) { return static_cast<std::byte>(i * 37 + i / 251); }

// A forked child finds nothing of its parent's, and its own.
void check_child(const SharedBuffer &buffer) {
    const pid_t child = fork();
    if (child == 0) {
        const bool none = find_shared(buffer.data(), 1) == nullptr;
        std::shared_ptr<SharedBuffer> own;
        const bool made = SharedBuffer::create(100, own) == 0;
        _exit(none && made && find_shared(own->data(), 100) == own ? 0 : 1);
    }
    int status = 1;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

} // namespace

int main() {
    constexpr std::size_t kBytes = 100'001;
    std::shared_ptr<SharedBuffer> buffer;
    CHECK(SharedBuffer::create(0, buffer) == EINVAL);
    CHECK(SharedBuffer::create(std::size_t{1} << 50, buffer) == ENOMEM);
    CHECK(SharedBuffer::create(kBytes, buffer) == 0);
    std::byte *const data = buffer->data();
    for (std::size_t i = 0; i < kBytes; ++i) {
        CHECK(data[i] == std::byte{0});
        data[i] = value(i);
    }
    CHECK(find_shared(data + 7, kBytes - 7) == buffer);
    CHECK(find_shared(data, buffer->nbytes() + 1) == nullptr && find_shared(data, 0) == nullptr);
    CHECK(find_shared(data - 1, 2) == nullptr);
    check_child(*buffer);

    const SharedIdentity before = buffer->identity();
    std::shared_ptr<PeerBuffer> peer, late;
    CHECK(map_peer(getpid(), before, peer) == 0 && peer->data() != data);
    peer->data()[5] = std::byte{99};
    CHECK(data[5] == std::byte{99});
    SharedIdentity wrong = before;
    ++wrong.id;
    CHECK(map_peer(getpid(), wrong, late) == ESTALE);

    // Renewed: same content and addresses, and who mapped the old file writes nowhere.
    std::uint64_t serial = gone_serial();
    CHECK(buffer->renew() == 0 && buffer->id() != before.id && buffer->fd() == before.fd);
    peer->data()[6] = std::byte{98};
    for (std::size_t i = 0; i < kBytes; ++i) {
        CHECK(data[i] == (i == 5 ? std::byte{99} : value(i)));
    }
    CHECK(map_peer(getpid(), before, late) == ESTALE);
    std::uint64_t ids[4];
    CHECK(gone_since(serial, ids) == 1 && ids[0] == before.id && gone_since(serial, ids) == 0);

    // An id that nobody was told of is not announced; nothing is found at the old address.
    const SharedIdentity last = buffer->identity();
    buffer.reset();
    CHECK(find_shared(data, 1) == nullptr && shared_count() == 0);
    CHECK(gone_since(serial, ids) == 0);
    CHECK(map_peer(getpid(), last, late) != 0);
    return 0;
}
