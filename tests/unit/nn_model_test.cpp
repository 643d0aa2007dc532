// Models as text, their tables and the memory plan.
#include <algorithm>

#include "support/lanes.hpp"
#include "trireme/base/error.hpp"
#include "trireme/param/partition.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

std::string refusal(const std::vector<std::string>& layers, Shape sample = {4}, std::int64_t outputs = 2) {
    try {
        Model(ModelDescription{layers, "", "kaiming"}, {}, sample, outputs, {.max_samples = 4});
    } catch (const Error& error) {
        CHECK(error.status() == Status::bad_usage);
        return error.what();
    }
    return "";
}

}  // namespace

TEST_CASE("layer lines that cannot be meant are refused by name", "[unit][nn]") {
    CHECK_THAT(refusal({"linaer out=3"}), contains("linaer out=3") && contains("did you mean `linear`?"));
    CHECK_THAT(refusal({"linear uot=3"}), contains("unknown option `uot`; did you mean `out`?"));
    CHECK_THAT(refusal({"linear out=0"}), contains("out=0: expected a whole number of at least 1"));
    CHECK_THAT(refusal({"linear out=1e3"}), contains("out=1e3"));
    CHECK_THAT(refusal({"linear"}), contains("`out=` is missing"));
    CHECK_THAT(refusal({"linear out"}), contains("`out` is no key=value"));
    CHECK_THAT(refusal({"linear out=3 out=4"}), contains("given twice"));
    CHECK_THAT(refusal({"dropout p=1.5", "linear out=2"}), contains("0 <= p <= 1"));
    CHECK_THAT(refusal({"gelu form=fast", "linear out=2"}), contains("expected exact or tanh"));
    CHECK_THAT(refusal({"conv out=2 kernel=3", "flatten", "linear out=2"}),
               contains("channels x height x width"));
    CHECK_THAT(refusal({"conv out=2 kernel=9", "flatten", "linear out=2"}, {1, 8, 8}),
               contains("does not fit"));
    CHECK_THAT(refusal({"conv out=3 kernel=1 groups=2", "flatten", "linear out=2"}, {4, 8, 8}),
               contains("groups=2"));
    CHECK_THAT(refusal({"linear out=2"}, {1, 8, 8}), contains("layer = flatten"));
    CHECK_THAT(refusal({"residual", "linear out=4"}), contains("`layer = end` is missing"));
    CHECK_THAT(refusal({"linear out=2", "end"}), contains("no residual block"));
    CHECK_THAT(refusal({"residual", "linear out=3", "end", "linear out=2"}),
               contains("the block ends with 3"));
    CHECK_THAT(refusal({"linear out=1"}), contains("output has the shape 1") && contains("2 classes"));
    CHECK(refusal({"linear out=3"}).empty());  // a class more than these data show
    CHECK_THAT(refusal({}), contains("no layers"));
    CHECK_THAT(refusal({"linear out=4 name=a", "linear out=2 name=a"}),
               contains("two parameters are called a.weight"));
}

TEST_CASE("init texts", "[unit][nn]") {
    CHECK(init_from("normal std=0.5", 1, 1).value == 0.5F);
    CHECK(init_from("normal", 1, 1).value == 0.02F);
    CHECK(init_from("constant value=-2", 1, 1).value == -2.0F);
    CHECK(init_from("zeros", 1, 1).value == 0.0F);
    for (const char* wrong : {"", "kaimin", "normal 0.5", "constant", "constant value=x", "zeros value=1"})
        CHECK_THROWS_AS(init_from(wrong, 1, 1), Error);
}

TEST_CASE("initial weights have the stated spread and depend on seed and index only", "[unit][nn]") {
    Rig rig({"linear out=400 name=wide", "relu", "linear out=3"}, {300}, 3, 2);
    const auto w = rig.arena.weights.of(rig.model.table()[0]).span<float>();
    double mean = 0, square = 0;
    for (const float v : w) mean += v, square += v * v;
    mean /= static_cast<double>(w.size());
    square /= static_cast<double>(w.size());
    CHECK(std::abs(mean) < 1e-3);
    CHECK(square == Approx(2.0 / 300).epsilon(0.02));

    Rig same({"linear out=400 name=wide", "relu", "linear out=3"}, {300}, 3, 2);
    const auto v = same.arena.weights.of(same.model.table()[0]).span<float>();
    CHECK(std::equal(w.begin(), w.end(), v.begin()));

    Rig xavier({"linear out=400"}, {300}, 400, 2, {LossKind::mse}, "xavier");
    const auto u = xavier.arena.weights.of(xavier.model.table()[0]).span<float>();
    const float bound = std::sqrt(6.0F / 700);
    CHECK(*std::max_element(u.begin(), u.end()) <= bound);
    CHECK(*std::min_element(u.begin(), u.end()) >= -bound);
    CHECK(*std::max_element(u.begin(), u.end()) > 0.99F * bound);
}

TEST_CASE("the arena lies in the order in which backward finishes", "[unit][nn]") {
    Rig rig({"linear out=5", "batchnorm", "relu", "linear out=classes"}, {7}, 3, 4);
    rig.run({0, 4}, &rig.arena.gradients);
    REQUIRE(rig.finished.size() == 3);
    CHECK(std::is_sorted(rig.finished.begin(), rig.finished.end()));
    CHECK(rig.finished.back() == rig.model.table().arena_size());
    const ParameterTable& table = rig.model.table();
    CHECK(table[table.count() - 1].name == "3.linear.bias");
    CHECK(table[table.order().front()].role == Role::statistic);
    CHECK(table[table.order().front()].place.begin == 0);
    CHECK(table.order()[2] == table.count() - 1);
    for (const Parameter& parameter : table.all()) CHECK(parameter.place.begin % 16 == 0);
    CHECK(table.weight_count() == 7 * 5 + 5 + 5 + 5 + 5 * 3 + 3);
}

TEST_CASE("names, decay and roles", "[unit][nn]") {
    Rig rig({"conv out=2 kernel=3 name=stem", "batchnorm", "flatten", "linear out=classes"}, {1, 5, 5}, 3, 2);
    std::string text;
    for (const Parameter& p : rig.model.table().all())
        text += p.name + (p.decay ? " decays " : " ") + (p.role == Role::statistic ? "statistic; " : "; ");
    CHECK(text ==
          "stem.weight decays ; stem.bias ; 1.batchnorm.weight ; 1.batchnorm.bias ; 1.batchnorm.running_mean "
          "statistic; 1.batchnorm.running_var statistic; 3.linear.weight decays ; 3.linear.bias ; ");
}

TEST_CASE("presets fit their data", "[unit][nn]") {
    const auto parameters = [](const std::string& arch, Shape sample, PresetOptions options = {}) {
        Model model(ModelDescription{preset_layers(arch, sample, options), "", "kaiming"}, {}, sample, 10,
                    {.max_samples = 2});
        return model.table().weight_count();
    };
    CHECK(parameters("mlp", {784}, {.widths = {512, 512}}) ==
          784 * 512 + 512 + 512 * 512 + 512 + 512 * 10 + 10);
    CHECK(parameters("cnn", {1, 28, 28}) == 32 * 9 + 32 + 64 * 32 * 9 + 64 + 64 * 49 * 128 + 128 + 1280 + 10);
    CHECK(parameters("resnet18", {3, 224, 224}) == 11181642);  // 11,689,512 with 1000 classes, as published
    CHECK(parameters("resnet18", {3, 32, 32}) == 11173962);
    CHECK_THROWS_AS(preset_layers("vgg", {3, 32, 32}, {}), Error);
    CHECK_THROWS_AS(preset_layers("cnn", {784}, {}), Error);
}

TEST_CASE("evaluation ignores dropout and takes running statistics", "[unit][nn]") {
    Rig rig({"linear out=6", "batchnorm", "dropout p=0.5", "linear out=classes"}, {4}, 3, 8);
    const double a = rig.run({0, 8}, nullptr, false, false, 1), b = rig.run({0, 8}, nullptr, false, false, 2);
    CHECK(a == b);
    CHECK(rig.run({0, 8}, nullptr, false, true, 1) != rig.run({0, 8}, nullptr, false, true, 2));
    // One by one as in one batch: nothing depends on the other samples.
    double one_by_one = 0;
    for (std::int64_t i = 0; i < 8; ++i) one_by_one += rig.run({i, i + 1}, nullptr, false, false);
    CHECK(one_by_one == Approx(a).epsilon(1e-6));
}

TEST_CASE("tensors that live together do not share memory", "[unit][nn]") {
    WorkspacePlan plan;
    struct Asked {
        TensorId id;
        std::int64_t bytes;
        int from, to;
    };
    std::vector<Asked> asked;
    for (int i = 0; i < 40; ++i) {
        const int tick = plan.next_tick();
        const std::int64_t per_sample = (i * 37) % 23, fixed = (i * 11) % 7;
        const int until = std::max(0, tick - i % 5);
        const TensorId id =
            i % 3 == 0 ? plan.add(per_sample, fixed, DType::f32, backward_at(tick), backward_at(until))
                       : plan.add(per_sample, fixed, DType::f32, forward_at(tick), backward_at(until));
        asked.push_back({id, 4 * (per_sample * 3 + fixed), i % 3 == 0 ? 80 - tick : tick, 80 - until});
    }
    plan.lay_out(3);
    std::int64_t total = 0;
    for (const Asked& a : asked) {
        total += a.bytes;
        CHECK(plan.offset(a.id) % 64 == 0);
        CHECK(plan.offset(a.id) + static_cast<std::size_t>(a.bytes) <= plan.bytes());
        for (const Asked& b : asked) {
            if (a.id >= b.id || a.to < b.from || b.to < a.from) continue;
            const auto begin_a = static_cast<std::int64_t>(plan.offset(a.id));
            const auto begin_b = static_cast<std::int64_t>(plan.offset(b.id));
            CHECK((begin_a + a.bytes <= begin_b || begin_b + b.bytes <= begin_a));
        }
    }
    CHECK(static_cast<std::int64_t>(plan.bytes()) < total + 40 * 64);
}
