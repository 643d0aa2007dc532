#pragma once
// Catch2 for every test, in version 2 (Debian 12) or 3: include this in place of Catch2's own headers.

#if __has_include(<catch2/catch_all.hpp>)
#define TRIREME_CATCH_VERSION 3
#include <catch2/catch_all.hpp>
#else
#define TRIREME_CATCH_VERSION 2
#include <catch2/catch.hpp>
#endif

#include <string>

namespace trireme::testing {

#if TRIREME_CATCH_VERSION == 3
using Approx = Catch::Approx;
#else
using Approx = Catch::Detail::Approx;
#endif

// Matcher: REQUIRE_THAT(text, contains("expected"))
inline auto contains(const std::string& text) {
#if TRIREME_CATCH_VERSION == 3
    return Catch::Matchers::ContainsSubstring(text);
#else
    return Catch::Matchers::Contains(text);
#endif
}

}  // namespace trireme::testing
