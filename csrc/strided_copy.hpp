// Copies between runs of strided memory and contiguous memory.
//
// A run is a number of bytes that are moved together; the strided side is where runs lie apart.
// Each function packs, or with Unpack true copies from the contiguous side to the strided one.
#pragma once

#include "copy_bytes.hpp"

#include <algorithm>
#include <cstddef>

namespace hierring {

// Moves one run.
template <bool Unpack>
[[gnu::always_inline]] inline void move_bytes(std::byte *strided, std::byte *contiguous,
                                              std::size_t nbytes) {
    if constexpr (Unpack) {
        copy_bytes(strided, contiguous, nbytes);
    } else {
        copy_bytes(contiguous, strided, nbytes);
    }
}

// Moves `count` runs of Nbytes bytes each, `stride` bytes apart; the copies are single
// instructions.
template <bool Unpack, std::size_t Nbytes>
void move_small_runs(std::byte *strided, std::ptrdiff_t stride, std::byte *contiguous,
                     std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        move_bytes<Unpack>(strided, contiguous, Nbytes);
        strided += stride;
        contiguous += Nbytes;
    }
}

// Moves `count` runs of any length.
template <bool Unpack>
void move_runs(std::byte *strided, std::ptrdiff_t stride, std::byte *contiguous, std::size_t count,
               std::size_t run_nbytes) {
    switch (run_nbytes) {
    case 1:
        return move_small_runs<Unpack, 1>(strided, stride, contiguous, count);
    case 2:
        return move_small_runs<Unpack, 2>(strided, stride, contiguous, count);
    case 4:
        return move_small_runs<Unpack, 4>(strided, stride, contiguous, count);
    case 8:
        return move_small_runs<Unpack, 8>(strided, stride, contiguous, count);
    case 12:
        return move_small_runs<Unpack, 12>(strided, stride, contiguous, count);
    case 16:
        return move_small_runs<Unpack, 16>(strided, stride, contiguous, count);
    case 32:
        return move_small_runs<Unpack, 32>(strided, stride, contiguous, count);
    case 64:
        return move_small_runs<Unpack, 64>(strided, stride, contiguous, count);
    default:
        for (std::size_t i = 0; i < count; ++i) {
            move_bytes<Unpack>(strided, contiguous, run_nbytes);
            strided += stride;
            contiguous += run_nbytes;
        }
    }
}

// Moves `rows` rows of `columns` runs of Nbytes bytes, where runs of one column lie closer together
// in the strided memory than those of one row, as in a transposed matrix. Square by square and
// through a local copy of it, so that each cache line of both sides is touched once: lines a power
// of two apart would push each other out of the cache between two touches.
template <bool Unpack, std::size_t Nbytes>
void move_square_tiles(std::byte *strided, std::ptrdiff_t row_stride, std::ptrdiff_t column_stride,
                       std::byte *contiguous, std::size_t rows, std::size_t columns) {
    constexpr std::size_t kSide = 16;
    std::byte tile[kSide][kSide][Nbytes]; // by columns, as they lie in the strided memory
    for (std::size_t row = 0; row < rows; row += kSide) {
        const std::size_t high = std::min(kSide, rows - row);
        for (std::size_t column = 0; column < columns; column += kSide) {
            const std::size_t wide = std::min(kSide, columns - column);
            std::byte *const far = strided + static_cast<std::ptrdiff_t>(row) * row_stride +
                                   static_cast<std::ptrdiff_t>(column) * column_stride;
            std::byte *const near = contiguous + (row * columns + column) * Nbytes;
            const auto move_far = [&] {
                for (std::size_t j = 0; j < wide; ++j) {
                    std::byte *at = far + static_cast<std::ptrdiff_t>(j) * column_stride;
                    for (std::size_t i = 0; i < high; ++i, at += row_stride) {
                        move_bytes<Unpack>(at, tile[j][i], Nbytes);
                    }
                }
            };
            const auto move_near = [&] {
                for (std::size_t i = 0; i < high; ++i) {
                    std::byte *const at = near + i * columns * Nbytes;
                    for (std::size_t j = 0; j < wide; ++j) {
                        move_bytes<Unpack>(tile[j][i], at + j * Nbytes, Nbytes);
                    }
                }
            };
            if constexpr (Unpack) {
                move_near();
                move_far();
            } else {
                move_far();
                move_near();
            }
        }
    }
}

// Returns the function for runs of this many bytes, or nullptr if they are too long to gain.
template <bool Unpack>
auto square_tiles(std::size_t run_nbytes) {
    switch (run_nbytes) {
    case 1:
        return &move_square_tiles<Unpack, 1>;
    case 2:
        return &move_square_tiles<Unpack, 2>;
    case 4:
        return &move_square_tiles<Unpack, 4>;
    case 8:
        return &move_square_tiles<Unpack, 8>;
    case 16:
        return &move_square_tiles<Unpack, 16>;
    default:
        return static_cast<decltype(&move_square_tiles<Unpack, 1>)>(nullptr);
    }
}

} // namespace hierring
