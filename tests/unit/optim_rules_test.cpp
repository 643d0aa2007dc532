// Rules by name: their text, which parameters they reach, and what the log says of them.
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "trireme/base/error.hpp"
#include "trireme/optim/rules.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

template <class Body>
std::string refused(const Body& body) {
    try {
        body();
    } catch (const Error& error) {
        CHECK(error.status() == Status::bad_usage);
        return error.what();
    }
    return {};
}

/// In arena order: norm.mean, head.bias, head.weight, norm.bias, norm.weight, stem.bias, stem.weight.
ParameterTable small_table() {
    ParameterTable table;
    table.add({.name = "stem.weight", .shape = {4, 3}, .decay = true});
    table.add({.name = "stem.bias", .shape = {4}});
    table.add({.name = "norm.weight", .shape = {4}});
    table.add({.name = "norm.bias", .shape = {4}});
    table.add({.name = "norm.mean", .shape = {4}, .role = Role::statistic, .average = 0.25F});
    table.add({.name = "head.weight", .shape = {20, 4}, .decay = true});
    table.add({.name = "head.bias", .shape = {20}});
    table.lay_out();
    return table;
}

std::vector<ParameterRule> rules(const std::vector<std::string>& texts) {
    std::vector<ParameterRule> parsed;
    for (const std::string& text : texts) parsed.push_back(parse_rule(text));
    return parsed;
}

/// The run that a parameter lies in.
UpdateRun run_of(const ParameterTable& table, const std::vector<UpdateRun>& runs, const std::string& name) {
    for (const Parameter& parameter : table.all())
        for (const UpdateRun& run : runs)
            if (parameter.name == name && run.place.begin <= parameter.place.begin &&
                parameter.place.end <= run.place.end)
                return run;
    FAIL("no run holds " << name);
    return {};
}

}  // namespace

TEST_CASE("rules are read", "[unit][optim]") {
    const ParameterRule both = parse_rule("*.bias  lr=2x decay=0");
    CHECK(both.pattern == "*.bias");
    CHECK(both.lr->value == 2);
    CHECK(both.lr->multiple);
    CHECK(both.decay->value == 0);
    CHECK(!both.decay->multiple);
    const ParameterRule one = parse_rule(" stem.? decay=1e-4 ");
    CHECK(one.pattern == "stem.?");
    CHECK(!one.lr);
    CHECK(one.decay->value == 1e-4);
    CHECK(parse_rule("a lr=0x").lr->multiple);
}

TEST_CASE("rules that cannot be read are quoted", "[unit][optim]") {
    const auto [text, reason] = GENERATE(table<std::string, std::string>({
        {"", "expected PATTERN"},
        {"*.bias", "expected PATTERN"},
        {"lr=2x", "expected PATTERN"},
        {"*.bias 2x", "2x is neither lr= nor decay="},
        {"*.bias rate=2", "rate=2 is neither lr= nor decay="},
        {"*.bias lr=2x lr=3x", "lr= is given twice"},
        {"*.bias lr=", "lr=: expected a number"},
        {"*.bias lr=x", "lr=x: expected a number"},
        {"*.bias lr=-1", "lr=-1: expected a number"},
        {"*.bias decay=inf", "decay=inf: expected a number"},
        {"*.bias decay=nanx", "decay=nanx: expected a number"},
    }));
    const std::string message = refused([&, rule = text] { parse_rule(rule); });
    CHECK_THAT(message, contains("optim.rule=" + text + ": "));
    CHECK_THAT(message, contains(reason));
}

TEST_CASE("runs cover the arena; neighbours alike are joined", "[unit][optim]") {
    const ParameterTable table = small_table();
    const std::vector<UpdateRun> runs = make_update_runs(table, {.weight_decay = 0.1});
    std::int64_t at = 0;
    for (const UpdateRun& run : runs) {
        CHECK(run.place.begin == at);
        at = run.place.end;
    }
    CHECK(at == table.arena_size());
    // norm.mean | head.bias | head.weight | norm.bias norm.weight stem.bias | stem.weight
    REQUIRE(runs.size() == 5);
    CHECK(runs[0].role == Role::statistic);
    CHECK(runs[0].average == 0.25F);
    CHECK(runs[2].weight_decay == 0.1);
    CHECK(runs[2].matrix);
    CHECK(runs[3].weight_decay == 0);
    CHECK(!runs[3].matrix);
    CHECK(make_update_runs(table, {.weight_decay = 0.1, .one_each = true}).size() == 7);
}

TEST_CASE("all rules that fit apply, the later one wins for each value", "[unit][optim]") {
    const ParameterTable table = small_table();
    const std::vector<UpdateRun> runs = make_update_runs(
        table,
        {.lr = 0.1,
         .weight_decay = 0.2,
         .rules = rules({"*.weight decay=3x", "*.bias lr=2x decay=0.05", "head.* lr=0.05", "stem.* lr=0x"})});
    const UpdateRun stem_weight = run_of(table, runs, "stem.weight");
    CHECK(stem_weight.lr_factor == 0);
    CHECK(stem_weight.weight_decay == Approx(0.6));
    const UpdateRun stem_bias = run_of(table, runs, "stem.bias");
    CHECK(stem_bias.lr_factor == 0);
    CHECK(stem_bias.weight_decay == 0.05);
    const UpdateRun norm_bias = run_of(table, runs, "norm.bias");
    CHECK(norm_bias.lr_factor == 2);
    CHECK(norm_bias.weight_decay == 0.05);
    const UpdateRun norm_weight = run_of(table, runs, "norm.weight");
    CHECK(norm_weight.lr_factor == 1);
    CHECK(norm_weight.weight_decay == Approx(0.6));  // as given, although norms have none by themselves
    CHECK(!norm_weight.matrix);
    const UpdateRun head_bias = run_of(table, runs, "head.bias");
    CHECK(head_bias.lr_factor == Approx(0.5));
    CHECK(head_bias.weight_decay == 0.05);
    CHECK(run_of(table, runs, "head.weight").lr_factor == Approx(0.5));
    CHECK(run_of(table, runs, "norm.mean").lr_factor == 1);  // statistics have no rate
}

TEST_CASE("a rule that fits no weight is refused with the names there are", "[unit][optim]") {
    const ParameterTable table = small_table();
    const auto refusal = [&](const std::string& rule) {
        return refused([&] { make_update_runs(table, {.rules = rules({rule})}); });
    };
    const std::string message = refusal("stem.wieght lr=2x decay=0.5");
    CHECK_THAT(message, contains("optim.rule=stem.wieght lr=2x decay=0.5: no weight is called stem.wieght"));
    CHECK_THAT(message, contains("there are: stem.weight, stem.bias"));
    CHECK_THAT(refusal("norm.mean lr=2x"), contains("no weight is called norm.mean"));
}

TEST_CASE("an absolute rate needs a rate that it relates to", "[unit][optim]") {
    const ParameterTable table = small_table();
    CHECK_THAT(refused([&] { make_update_runs(table, {.lr = 0, .rules = rules({"stem.* lr=0.1"})}); }),
               contains("optim.rule=stem.* lr=0.1: "));
    const std::vector<UpdateRun> runs = make_update_runs(table, {.lr = 0, .rules = rules({"stem.* lr=0"})});
    CHECK(run_of(table, runs, "stem.bias").lr_factor == 0);
}

TEST_CASE("the log says who decays and who has a rate of its own", "[unit][optim]") {
    const ParameterTable table = small_table();
    CHECK(groups_text(table, {.weight_decay = 0.1}) ==
          "weight decay on: stem.weight head.weight; not on: stem.bias norm.weight norm.bias head.bias");
    CHECK(groups_text(table, {.weight_decay = 0}) ==
          "weight decay on: none; not on: stem.weight stem.bias norm.weight norm.bias head.weight head.bias");
    CHECK(groups_text(table, {.lr = 0.1,
                              .weight_decay = 0.1,
                              .rules = rules({"*.bias lr=2x", "head.* decay=0.05", "head.weight lr=0.02",
                                              "stem.* lr=0"})}) ==
          "weight decay 0.1 on: stem.weight; weight decay 0.05 on: head.weight head.bias; "
          "not on: stem.bias norm.weight norm.bias\n"
          "frozen (rate 0): stem.weight stem.bias\n"
          "learning rate x2 on: norm.bias head.bias\n"
          "learning rate x0.2 on: head.weight");
}
