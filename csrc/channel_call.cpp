// Channel, second part: verdicts, and operations small enough to travel with the arrival.
#include "channel.hpp"
#include "channel_data.hpp"

#include <algorithm>
#include <stdexcept>

namespace hierring {

// --- verdict ---

Flag Channel::verdict_flag(unsigned parity) const noexcept {
    Verdict &line = verdict_line(parity);
    return {&line.seq, &line.sleepers};
}

void Channel::publish_verdict(std::uint64_t seq, int code, std::span<const std::byte> detail,
                              std::span<const std::byte> payload) {
    if (local_rank_ != 0 || seq != seq_) {
        throw std::invalid_argument("local rank 0 alone gives the verdict, on its own operation");
    }
    if (detail.size() > kDetailBytes || payload.size() > layout_.verdict_payload_nbytes()) {
        throw std::invalid_argument("the detail or the payload of the verdict is too long");
    }
    // What stood here was on operation seq - 2, which all peers left before they arrived at seq
    // - 1.
    Verdict &line = verdict_line(parity());
    line.code = code;
    line.detail_nbytes = static_cast<std::uint32_t>(detail.size());
    line.payload_nbytes = static_cast<std::uint32_t>(payload.size());
    std::copy(detail.begin(), detail.end(), line.detail);
    if (!payload.empty()) {
        copy(const_cast<std::byte *>(verdict_payload()), payload.data(), payload.size());
    }
    publish(verdict_flag(parity()), static_cast<std::uint32_t>(seq));
}

// Where the payload of the verdict lies, whose length is already known.
const std::byte *Channel::verdict_payload() const noexcept {
    const Verdict &line = verdict_line(parity());
    return line.payload_nbytes <= kInlineBytes
               ? line.inline_payload
               : reinterpret_cast<const std::byte *>(&line) + sizeof(Verdict);
}

Status Channel::await_verdict(std::int64_t until_ns) {
    const Flag flag = verdict_flag(parity());
    const auto value = static_cast<std::uint32_t>(seq_);
    return reached(look(flag), value) ? Status::done
                                      : wait_for(flag, value, 0, Spent::wait_verdict, until_ns);
}

Status Channel::verdict(std::uint64_t seq, std::int64_t until_ns) {
    if (seq != seq_) {
        throw std::invalid_argument("the verdict on another operation is no more, or not yet");
    }
    return await_verdict(until_ns);
}

// Throws unless the verdict on the current operation is there.
void Channel::check_verdict() const {
    if (!reached(look(verdict_flag(parity())), static_cast<std::uint32_t>(seq_))) {
        throw std::logic_error("there is no verdict yet");
    }
}

int Channel::verdict_code() const {
    check_verdict();
    return verdict_line(parity()).code;
}

std::span<const std::byte> Channel::verdict_detail() const {
    check_verdict();
    const Verdict &line = verdict_line(parity());
    return {line.detail, line.detail_nbytes};
}

// --- small operations ---

// Where the payload of an arrival lies.
const std::byte *Channel::small_payload(unsigned local_rank) const noexcept {
    const Arrival &arrival = head(local_rank).arrival[parity()];
    return (arrival.payload & kPayloadBytes) <= kInlineBytes
               ? arrival.inline_payload
               : at(layout_.slot(local_rank) + layout_.small(parity()));
}

// The payloads of all ranks as operands. Throws if they are not all here or not of this length.
std::span<Source> Channel::small_sources(DType type, std::size_t count) {
    if (!all_arrived()) {
        throw std::logic_error("not all local ranks have arrived");
    }
    sources_.clear();
    for (unsigned rank = 0; rank < local_size(); ++rank) {
        if ((head(rank).arrival[parity()].payload & kPayloadBytes) != count * itemsize(type)) {
            throw std::invalid_argument("a payload is not of this count and dtype");
        }
        sources_.push_back({small_payload(rank), type, scale(rank)});
    }
    return sources_;
}

void Channel::reduce_small(void *dst, DType dst_type, DType type, std::size_t count, Op op,
                           double divisor) {
    const auto sources = small_sources(type, count);
    reduce(dst, dst_type, sources, count, op, divisor);
}

void Channel::reduce_small_to(const View &out, DType type, std::size_t count, Op op,
                              double divisor) {
    if (out.count() < count || out.itemsize() != itemsize(type)) {
        throw std::invalid_argument("the view does not take this count and dtype");
    }
    reduce_into(out, type, small_sources(type, count), count, op, divisor, scratch_);
}

void Channel::finish_small(const View &out, DType type, DType work_type, std::size_t first,
                           std::size_t count, double divisor) {
    check_verdict();
    const std::size_t nbytes = verdict_line(parity()).payload_nbytes;
    if (out.count() < count || out.itemsize() != itemsize(type) ||
        (first + count) * itemsize(work_type) > nbytes) {
        throw std::invalid_argument("the view or the payload of the verdict is too short");
    }
    deliver(out, 0, type, verdict_payload() + first * itemsize(work_type), work_type, count,
            divisor, scratch_);
}

} // namespace hierring
