#include <cmath>

#include "support/catch.hpp"
#include "trireme/train/generate.hpp"

using namespace trireme;

TEST_CASE("tokens are drawn by their share of the softmax", "[unit][train]") {
    const std::vector<float> logits = {std::log(1.0F), std::log(2.0F),
                                       std::log(5.0F)};  // shares 1/8, 2/8, 5/8
    const auto counts = [&](double temperature, std::int64_t top_k) {
        std::vector<int> count(3);
        for (int i = 0; i < 800; ++i)
            ++count[static_cast<std::size_t>(draw_token(logits, temperature, top_k, (i + 0.5) / 800))];
        return count;
    };
    CHECK(counts(1, 0) == std::vector<int>{100, 200, 500});
    CHECK(counts(0, 0) == std::vector<int>{0, 0, 800});
    CHECK(counts(1, 1) == std::vector<int>{0, 0, 800});
    CHECK(counts(1, 2)[0] == 0);
    CHECK(counts(1, 99) == counts(1, 0));
    CHECK(counts(0.5, 0)[2] == 667);            // shares 1, 4, 25 of 30
    CHECK(draw_token({1, 1}, 0, 0, 0.9) == 0);  // the first of equals
}
