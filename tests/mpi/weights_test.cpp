// Weights of a safetensors file on any number of ranks, whatever part of each parameter a rank holds.
#include <mpi.h>

#include <bit>
#include <cmath>
#include <optional>

#include "comm/mpi_communicator.hpp"
#include "support/catch.hpp"
#include "support/checkpoint_state.hpp"
#include "support/safetensors.hpp"
#include "support/tensors.hpp"
#include "train/weight_source.hpp"
#include "trireme/base/error.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/ops/ops.hpp"

using namespace trireme;
using namespace trireme::testing;

namespace {

// Those of small_table, in words.
const std::vector<std::string> layers = {"linear out=8", "batchnorm", "rows", "scale", "bias"};

// A file of all ranks, written by one of them.
class SharedFile {
public:
    SharedFile(Communicator& comm, const std::string& content) : comm_(comm) {
        if (comm.rank() == 0) folder_.emplace();
        path_ = broadcast_text(comm, folder_ ? (*folder_ / "w.safetensors").string() : "");
        if (folder_) write_file(path_, content);
        comm.barrier();
    }
    ~SharedFile() { comm_.barrier(); }
    const std::string& path() const { return path_; }

private:
    Communicator& comm_;
    std::optional<TempDir> folder_;
    std::string path_;
};

// The bits that State::fill has, each tensor whole.
RawTensors tensors_of(std::uint64_t seed) {
    const ParameterTable table = small_table({});
    RawTensors tensors;
    for (std::size_t p = 0; p < table.all().size(); ++p) {
        const Parameter& parameter = table.all()[p];
        std::string bytes;
        for (std::int64_t i = 0; i < parameter.shape.count(); ++i) {
            const std::uint32_t word =
                RandomStream(seed, Purpose::init, 0, p).word(static_cast<std::uint64_t>(i));
            bytes.append(reinterpret_cast<const char*>(&word), 4);
        }
        tensors[parameter.name] = {"F32", {parameter.shape.begin(), parameter.shape.end()}, bytes};
    }
    return tensors;
}

void load(Communicator& world, const std::string& path, const ParameterTable& table, Arena& arena) {
    const std::unique_ptr<Device> device = make_device("cpu");
    const std::unique_ptr<Ops> ops = make_ops(*device, 1);
    load_weights(world, *device, *ops, {.path = path}, layers, table, arena);
}

}  // namespace

TEST_CASE("every rank gets the bits of its part", "[mpi][train]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    RawTensors tensors = tensors_of(21);
    // One parameter as PyTorch has it, the others under their own names.
    tensors["0.weight"] = tensors.at("0.linear.weight");
    tensors.erase("0.linear.weight");
    const SharedFile file(world, raw_file(tensors));
    for (const int shards : {1, world.size(), std::min(2, world.size())}) {
        State state({.shards = shards, .shard = world.rank() % shards});
        load(world, file.path(), state.table, state.arena);
        CHECK(state.holds(21, false));
    }
}

TEST_CASE("16-bit weights are widened", "[mpi][train]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    constexpr std::int64_t all = 1 << 16;
    std::string bits;
    for (int i = 0; i < all; ++i) {
        const auto pattern = static_cast<std::uint16_t>(i);
        bits.append(reinterpret_cast<const char*>(&pattern), 2);
    }
    const auto device = make_device("cpu");
    for (const auto& [name, type] : {std::pair{"BF16", DType::bf16}, {"F16", DType::f16}}) {
        const SharedFile file(world, raw_file({{"w", {name, {all / 4, 4}, bits}}}));
        ParameterTable table;
        table.add({.name = "w",
                   .shape = {all / 4, 4},
                   .slice = Slice{1, part_of({0, 4}, world.size(), world.rank())}});
        table.lay_out();
        Arena arena(*device, table, {});
        load(world, file.path(), table, arena);
        const Parameter& parameter = table[0];
        const float* here = arena.weights.of(parameter).as<float>();
        std::int64_t wrong = 0;
        for (const Strip& strip : strips_of(parameter, {0, parameter.local_count()}))
            for (std::int64_t i = 0; i < strip.count; ++i) {
                const auto expected =
                    static_cast<float>(value_of(type, static_cast<std::uint16_t>(strip.whole + i)));
                const float got = here[strip.local + i];
                const bool same = std::isnan(expected) ? std::isnan(got)
                                                       : std::bit_cast<std::uint32_t>(got) ==
                                                             std::bit_cast<std::uint32_t>(expected);
                wrong += same ? 0 : 1;
            }
        CHECK(wrong == 0);
    }
}

TEST_CASE("all ranks refuse alike what does not fit, and load nothing", "[mpi][train]") {
    MpiCommunicator world(MPI_COMM_WORLD, false);
    const auto refusal = [&](const RawTensors& tensors) {
        const SharedFile file(world, raw_file(tensors));
        State state({.shards = world.size(), .shard = world.rank()});
        state.fill(1);
        std::string said;
        try {
            load(world, file.path(), state.table, state.arena);
        } catch (const Error& error) {
            CHECK(error.status() == Status::bad_data);
            CHECK(error.scope() == Scope::all_ranks);
            said = error.what();
        }
        CHECK(said.find(file.path()) != std::string::npos);
        CHECK(state.holds(1));
        for (const std::string& other : gather_texts(world, said)) CHECK(other == said);
        return said;
    };
    const RawTensors good = tensors_of(2);
    RawTensors tensors = good;
    tensors.erase("4.bias");
    CHECK_THAT(refusal(tensors), contains("4.bias (1) is missing in the file"));

    tensors = good;
    tensors["head.weight"] = {"F32", {2}, std::string(8, 'x')};
    CHECK_THAT(refusal(tensors), contains("head.weight (2) of the file is not in the model"));
    tensors = good;
    tensors["0.weight"] = good.at("0.linear.weight");  // under both names
    CHECK_THAT(refusal(tensors), contains("0.linear.weight (8x7) of the file is not in the model"));

    tensors = good;
    tensors["0.linear.weight"].shape = {7, 8};
    CHECK_THAT(refusal(tensors), contains("0.linear.weight is 7x8 in the file, 8x7 in the model"));
    tensors["0.linear.weight"].shape = {56};
    CHECK_THAT(refusal(tensors), contains("0.linear.weight is 56 in the file"));

    tensors = good;
    tensors["4.bias"].type = "I32";
    CHECK_THAT(refusal(tensors), contains("4.bias is I32 in the file, expected F32, BF16 or F16"));
    tensors["4.bias"] = {"F64", {1}, std::string(8, 'x')};
    CHECK_THAT(refusal(tensors), contains("4.bias is F64 in the file"));
}
