// The one assertion of the native tests.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>

namespace hierring::test {

// What is being tested, seed included; printed by a failing check. Set while one thread runs.
inline std::string context;

// Ends the test, naming the place.
inline void check(bool good, const char *what, const char *file, int line) {
    if (!good) {
        std::fprintf(stderr, "%s:%d: not true: %s\n%s\n", file, line, what, context.c_str());
        std::abort();
    }
}

} // namespace hierring::test

// A macro, for the text of the condition.
#define CHECK(condition) ::hierring::test::check((condition), #condition, __FILE__, __LINE__)
