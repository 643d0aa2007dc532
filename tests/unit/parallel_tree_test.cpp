#include <functional>

#include "support/catch.hpp"
#include "trireme/parallel/lane_tree.hpp"

using namespace trireme;

namespace {

/// The sum over lanes [0, lanes) as text, when each of `workers` sums its even part and the parts are joined.
std::string sum_text(std::int64_t lanes, std::int64_t workers) {
    LaneStack joined(lanes);
    std::vector<std::string> terms;
    const auto add = [](LaneStack& stack, std::vector<std::string>& texts, LaneNode node,
                        const std::string& text) {
        texts.push_back(text);
        for (int joins = stack.push(node); joins > 0; --joins) {
            const std::string top = texts.back();
            texts.pop_back();
            texts.back() = "(" + texts.back() + "+" + top + ")";
        }
    };
    for (std::int64_t w = 0; w < workers; ++w) {
        LaneStack own(lanes);
        std::vector<std::string> parts;
        const Range mine = part_of({0, lanes}, workers, w);
        for (std::int64_t lane = mine.begin; lane < mine.end; ++lane)
            add(own, parts, {0, lane}, std::to_string(lane));
        CHECK(own.nodes() == nodes_of(mine, lanes));
        for (std::size_t i = 0; i < parts.size(); ++i) add(joined, terms, own.nodes()[i], parts[i]);
    }
    CHECK(terms.size() == 1);
    return terms.empty() ? "" : terms.front();
}

}  // namespace

TEST_CASE("the tree is the same however the lanes are dealt out", "[unit][parallel]") {
    CHECK(sum_text(8, 1) == "(((0+1)+(2+3))+((4+5)+(6+7)))");
    CHECK(sum_text(5, 1) == "(((0+1)+(2+3))+4)");
    for (const std::int64_t lanes : {1, 2, 3, 4, 5, 6, 7, 8, 12, 13, 16, 31})
        for (std::int64_t workers = 1; workers <= lanes + 2; ++workers) {
            INFO(lanes << " lanes, " << workers << " workers");
            CHECK(sum_text(lanes, workers) == sum_text(lanes, 1));
        }
}

TEST_CASE("a stack is as deep as the tree, not as the lanes are many", "[unit][parallel]") {
    CHECK(stack_depth({0, 8}, 8) == 4);
    CHECK(stack_depth({0, 64}, 64) == 7);
    CHECK(stack_depth({4, 8}, 8) == 3);
    CHECK(stack_depth({3, 3}, 8) == 0);
}
