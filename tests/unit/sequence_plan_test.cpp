// What a rank holds of a model whose positions are split between layers.
#include "support/catch.hpp"
#include "trireme/base/error.hpp"
#include "trireme/nn/model.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

Model model(const ModelDescription& description, bool sequence, int rank, int ranks,
            DType compute = DType::f32) {
    return {description,
            {},
            {64},
            65,
            {.max_samples = 4, .compute = compute, .group = TensorGroup(rank, ranks), .sequence = sequence}};
}

ModelDescription gpt(double dropout) {
    const PresetOptions options{.widths = {}, .dropout = dropout, .layers = 4, .d_model = 96, .heads = 4};
    return {.layers = preset_layers("gpt", {64}, options)};
}

std::string refusal(const std::vector<std::string>& layers) {
    try {
        model({layers, "", "kaiming"}, true, 0, 2);
    } catch (const Error& error) {
        CHECK(error.status() == Status::bad_usage);
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("split positions take less memory for activations", "[unit][sequence]") {
    for (const double dropout : {0.0, 0.1})
        for (const DType compute : {DType::f32, DType::bf16})
            for (const int ranks : {2, 4})
                for (int rank = 0; rank < ranks; ++rank) {
                    const auto whole = model(gpt(dropout), false, rank, ranks, compute).workspace().bytes();
                    const auto split = model(gpt(dropout), true, rank, ranks, compute).workspace().bytes();
                    INFO(ranks << " ranks, dropout " << dropout << ", " << name_of(compute) << ": " << split
                               << " bytes instead of " << whole);
                    CHECK(static_cast<double>(split) < 0.85 * static_cast<double>(whole));
                }
}

TEST_CASE("learned positions are split as the positions are", "[unit][sequence]") {
    for (int rank = 0; rank < 3; ++rank) {
        const Model split = model(gpt(0), true, rank, 3);
        std::int64_t found = 0;
        for (const Parameter& parameter : split.table().all()) {
            if (parameter.name != "positions.weight") continue;
            ++found;
            REQUIRE(parameter.slice.has_value());
            CHECK(parameter.slice->axis == 0);
            CHECK(parameter.slice->range == part_of({0, 64}, 3, rank));
            CHECK(parameter.counted);
        }
        CHECK(found == 1);
        CHECK(split.output() == Shape{64, 65});
    }
}

TEST_CASE("models whose positions cannot be split are refused", "[unit][sequence]") {
    CHECK_THAT(refusal({"embedding dim=8", "linear out=classes", "gelu"}), contains("last layer"));
    CHECK(refusal({"embedding dim=8", "layernorm", "linear out=classes"}).empty());
    CHECK(refusal({"embedding dim=8", "linear out=8", "relu", "linear out=classes"}).empty());
}
