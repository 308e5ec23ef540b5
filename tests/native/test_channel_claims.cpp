// What two ranks on a channel tell each other of shared buffers: owner and peer in one process, so
// that the peer's mapping is a second one of the same pages.
#include "channel_claims.hpp"
#include "check.hpp"

#include <unistd.h>

using namespace hierring;

namespace {

std::shared_ptr<SharedBuffer> make_buffer() {
    std::shared_ptr<SharedBuffer> buffer;
    CHECK(SharedBuffer::create(3 * kPage, buffer) == 0);
    return buffer;
}

int refuse(pid_t, const SharedPlace &, Claims::Mapped &) { return EMFILE; }

// A claim that the peer has mapped; what the owner wrote to `call`.
void share(Claims &owner, Claims &peer, SharedBuffer &buffer, Call &call) {
    owner.make(buffer.data() + 5, buffer.data() + kPage, 100);
    CHECK(owner.describe(call) == (kClaims | kFresh));
    CHECK(peer.map(0, getpid(), call));
    owner.settle(true);
}

void test_places() {
    Claims owner(2, true), peer(2, true);
    const auto buffer = make_buffer();
    Call call{};
    share(owner, peer, *buffer, call);
    buffer->data()[5] = std::byte{17};
    CHECK(*peer.find(0, call.x) == std::byte{17});
    *peer.find(0, call.out) = std::byte{18};
    CHECK(buffer->data()[kPage] == std::byte{18});
    CHECK(peer.mapped() == 1); // x and out lie in one buffer
    owner.release();
    owner.make(buffer->data(), buffer->data(), 8);
    CHECK(owner.describe(call) == kClaims && call.x.fresh == 0); // not mapped twice
}

void test_what_is_not_claimed() {
    Claims owner(2, true), other(2, true), never(2, false);
    const auto buffer = make_buffer();
    std::vector<std::byte> ordinary(64);
    owner.make(ordinary.data(), ordinary.data(), 64);
    CHECK(!owner.armed());
    owner.make(buffer->data(), ordinary.data(), 64);
    CHECK(!owner.armed());
    owner.make(buffer->data() + 1, buffer->data() + 1, 3 * kPage); // reaches out of it
    CHECK(!owner.armed());
    never.make(buffer->data(), buffer->data(), 64);
    CHECK(!never.armed());
    owner.make(buffer->data(), buffer->data(), 64);
    CHECK(owner.armed());
    other.make(buffer->data() + kPage, buffer->data() + kPage, 64); // claimed by another operation
    CHECK(!other.armed());
    owner.release();
    other.make(buffer->data() + kPage, buffer->data() + kPage, 64);
    CHECK(other.armed());
}

void test_a_refused_buffer_is_never_claimed_again() {
    Claims owner(2, true), peer(2, true);
    peer.set_mapper(refuse);
    const auto buffer = make_buffer();
    Call call{};
    owner.make(buffer->data(), buffer->data(), 64);
    owner.describe(call);
    CHECK(!peer.map(0, getpid(), call) && peer.mapped() == 0);
    owner.settle(false);
    owner.release();
    owner.make(buffer->data(), buffer->data(), 64);
    CHECK(!owner.armed() && owner.describe(call) == 0);
}

// Freed and made anew: each id is told once, and the peer's mappings stay few.
void test_gone_buffers_are_told() {
    Claims owner(2, true), peer(2, true);
    Call call{};
    for (int turn = 0; turn < 200; ++turn) {
        const auto buffer = make_buffer();
        owner.make(buffer->data(), buffer->data(), 64);
        const std::uint32_t bits = owner.describe(call);
        CHECK(bits == (kClaims | kFresh | (turn > 0 ? kGone : 0)));
        if ((bits & kGone) != 0) {
            CHECK(call.gone_count == 1);
            peer.forget(0, {call.gone, call.gone_count});
        }
        CHECK(peer.map(0, getpid(), call) && peer.mapped() == 1);
        owner.settle(true);
        owner.release();
    }
    CHECK(owner.describe(call) == kGone && call.gone_count == 1);
    peer.forget(0, {call.gone, call.gone_count});
    CHECK(peer.mapped() == 0 && owner.describe(call) == 0);
}

// A peer that goes on after a break writes to pages that nobody looks at any more.
void test_a_late_peer_writes_to_old_pages() {
    Claims owner(2, true), peer(2, true);
    const auto buffer = make_buffer();
    Call call{};
    buffer->data()[kPage + 7] = std::byte{3};
    share(owner, peer, *buffer, call);
    const std::uint64_t before = buffer->id();
    CHECK(owner.break_off() == 0);
    CHECK(owner.torn() && !owner.armed() && buffer->id() != before);
    CHECK(buffer->data()[kPage + 7] == std::byte{3});
    std::byte *const late = peer.find(0, call.out);
    std::fill_n(late, 100, std::byte{99});
    CHECK(buffer->data()[kPage] == std::byte{0} && buffer->data()[kPage + 7] == std::byte{3});
    CHECK(owner.break_off() == 0); // once more is fine
}

} // namespace

int main() {
    test_places();
    test_what_is_not_claimed();
    test_a_refused_buffer_is_never_claimed_again();
    test_gone_buffers_are_told();
    test_a_late_peer_writes_to_old_pages();
    return 0;
}
