// Weights out as safetensors: PyTorch's names, the checkpoint's bits, and what is refused.
#include <cstring>
#include <sstream>

#include "support/exports.hpp"
#include "support/tensors.hpp"

using namespace trireme;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

// The first python3 that knows these modules; empty where there is none.
std::string python_with(const std::string& modules) {
    for (const std::string python : {"python3", "/usr/bin/python3"})
        if (run({python, "-c", "import " + modules}).status == 0) return python;
    return "";
}

}  // namespace

TEST_CASE("an exported file has PyTorch's names, whole shapes and the checkpoint's bits", "[cli-export]") {
    const TempDir folder;
    const Run run = image_run(folder);
    run.expect(0, 2);
    const Checkpoint saved = read_checkpoint(run.best_path());
    export_to(run.dir(), folder / "new folder/w.safetensors");
    REQUIRE(fs::exists(folder / "new folder/w.safetensors"));
    REQUIRE(std::distance(fs::directory_iterator(folder / "new folder"), fs::directory_iterator()) == 1);

    using Extents = std::vector<std::int64_t>;
    const std::tuple<const char*, const char*, Extents> expected[] = {
        {"0.conv.weight", "0.weight", {4, 2, 3, 3}},
        {"0.conv.bias", "0.bias", {4}},
        {"1.batchnorm.weight", "1.weight", {4}},
        {"1.batchnorm.bias", "1.bias", {4}},
        {"1.batchnorm.running_mean", "1.running_mean", {4}},
        {"1.batchnorm.running_var", "1.running_var", {4}},
        {"3.layernorm.weight", "3.weight", {4}},
        {"3.layernorm.bias", "3.bias", {4}},
        {"6.linear.weight", "6.weight", {6, 64}},
        {"6.linear.bias", "6.bias", {6}},
        {"head.weight", "head.weight", {5, 6}},
    };
    const RawTensors exported = read_raw(folder / "new folder/w.safetensors");
    REQUIRE(exported.size() == std::size(expected));
    REQUIRE(saved.weights.size() == std::size(expected));
    for (const auto& [own, torch, shape] : expected) {
        INFO(torch);
        REQUIRE(exported.contains(torch));
        CHECK(exported.at(torch).type == "F32");
        CHECK(exported.at(torch).shape == shape);
        CHECK(std::memcmp(exported.at(torch).bytes.data(), saved.weights.at(own).data(),
                          exported.at(torch).bytes.size()) == 0);
    }
    const auto metadata = raw_header(read_file(folder / "new folder/w.safetensors"))["__metadata__"];
    CHECK(metadata["format"] == "pt");
    CHECK(metadata["normalize"] == "standard");

    export_to(run.best_path(), folder / "bf16.safetensors", {"--dtype=bf16"});
    const RawTensors rounded_to = read_raw(folder / "bf16.safetensors");
    for (const auto& [own, torch, shape] : expected) {
        const std::string& bytes = rounded_to.at(torch).bytes;
        CHECK(rounded_to.at(torch).type == "BF16");
        CHECK(rounded_to.at(torch).shape == shape);
        const std::vector<float>& values = saved.weights.at(own);
        REQUIRE(bytes.size() == 2 * values.size());
        for (std::size_t i = 0; i < values.size(); ++i) {
            std::uint16_t bits = 0;
            std::memcpy(&bits, bytes.data() + 2 * i, 2);
            REQUIRE(value_of(DType::bf16, bits) == rounded(DType::bf16, static_cast<double>(values[i])));
        }
    }

    // The average is another set of weights, of the same statistics' names.
    export_to(run.best_path(), folder / "average.safetensors", {"--average"});
    const RawTensors average = read_raw(folder / "average.safetensors");
    REQUIRE(average.size() == exported.size());
    CHECK(average.at("6.weight").bytes != exported.at("6.weight").bytes);
    const std::vector<double> ema = read_values(run.best_path(), "/ema/6.linear.weight");
    const std::vector<float> values = average.at("6.weight").floats();
    REQUIRE(values.size() == ema.size());
    for (std::size_t i = 0; i < ema.size(); ++i) REQUIRE(static_cast<double>(values[i]) == ema[i]);
}

TEST_CASE("export refuses wrong options, foreign files and precious outputs", "[cli-export]") {
    const TempDir folder;
    const Run run = Run(folder / "run", single_weight(folder / "data.h5")).with({{"train.max_steps", "1"}});
    run.expect(0);
    const std::string checkpoint = run.checkpoint_path(1),
                      output = "--output=" + (folder / "w.safetensors").string();
    CHECK_THAT(run_program(0, {"export", checkpoint}, 2).err, contains("needs --output=FILE.safetensors"));
    CHECK_THAT(run_program(0, {"export", checkpoint, "--output=w.bin"}, 2).err,
               contains("--output=w.bin: expected a name that ends with .safetensors"));
    CHECK_THAT(run_program(0, {"export", checkpoint, output, "--dtype=fp8"}, 2).err,
               contains("--dtype=fp8: expected fp32 or bf16"));
    CHECK_THAT(run_program(0, {"export", checkpoint, output, "--average"}, 3).err,
               contains("has no averaged weights"));
    CHECK_THAT(run_program(0, {"export", folder / "data.h5", output}, 3).err,
               contains("no Trireme checkpoint"));
    CHECK_THAT(run_program(2, {"export", folder / "missing.h5", output}, 3).err, contains("missing.h5"));
    fs::create_directory(folder / "there.safetensors");
    CHECK_THAT(
        run_program(0, {"export", checkpoint, "--output=" + (folder / "there.safetensors").string()}, 2).err,
        contains("expected the name of a file to write"));
    fs::copy_file(checkpoint, folder / "c.safetensors");
    const std::string before = read_file(checkpoint);
    CHECK_THAT(
        run_program(
            0, {"export", folder / "c.safetensors", "--output=" + (folder / "c.safetensors").string()}, 2)
            .err,
        contains("this is the checkpoint"));
    CHECK(read_file(folder / "c.safetensors") == before);
    truncate_file(checkpoint, 0.8);
    run_program(0, {"export", checkpoint, output}, 3);
    CHECK_FALSE(fs::exists(folder / "w.safetensors"));
    for (const auto& entry : fs::directory_iterator(folder.path()))
        CHECK(entry.path().string().find(".tmp") == std::string::npos);
}

TEST_CASE("plain Python reads an exported file and gets the model's outputs", "[cli-export]") {
    const std::string python = python_with("struct, json, math");
    if (python.empty()) {
        WARN("skipped: there is no python3");
        return;
    }
    const TempDir folder;
    write_samples(folder / "train.h5", clusters(40, Shape{5}, 3));
    const Run run(folder / "run", {{"data.train", folder / "train.h5"},
                                   {"model.layer", "linear out=4"},
                                   {"model.layer", "batchnorm"},
                                   {"model.layer", "relu"},
                                   {"model.layer", "linear out=classes"},
                                   {"train.batch", "8"},
                                   {"train.epochs", "2"}});
    run.expect(0);
    export_to(run.dir(), folder / "w.safetensors");
    Samples one = clusters(1, Shape{5}, 3, 9);
    write_samples(folder / "one.h5", one);
    run_program(0, {"predict", run.dir().string(), "--data=" + (folder / "one.h5").string(),
                    "--output=" + (folder / "out.h5").string()});
    const std::vector<double> expected = read_values(folder / "out.h5", "/output");

    std::string inputs;
    for (const double x : one.x) inputs += std::to_string(x) + ",";
    const std::string script =
        "import struct, json, math\n"
        "raw = open('" +
        (folder / "w.safetensors").string() +
        "', 'rb').read()\n"
        "n = struct.unpack('<Q', raw[:8])[0]\n"
        "head = json.loads(raw[8:8 + n])\n"
        "def tensor(name):\n"
        "    a, b = head[name]['data_offsets']\n"
        "    return struct.unpack('<%df' % ((b - a) // 4), raw[8 + n + a:8 + n + b])\n"
        // torch.nn.Sequential(Linear(5, 4), BatchNorm1d(4), ReLU(), Linear(4, 3)).eval(), written out
        "def linear(x, i):\n"
        "    w, b = tensor(f'{i}.weight'), tensor(f'{i}.bias')\n"
        "    return [sum(u * v for u, v in zip(w[o * len(x):], x)) + b[o] for o in range(len(b))]\n"
        "def norm(x, i):\n"
        "    w, b, m, v = (tensor(f'{i}.{p}') for p in ('weight', 'bias', 'running_mean', 'running_var'))\n"
        "    return [(x[c] - m[c]) / math.sqrt(v[c] + 1e-5) * w[c] + b[c] for c in range(len(x))]\n"
        "print(*linear([max(0, h) for h in norm(linear([" +
        inputs + "], 0), 1)], 3))\n";
    const Result result = trireme::testing::run({python, "-c", script});
    INFO(result.err);
    REQUIRE(result.status == 0);
    std::istringstream numbers(result.out);
    for (const double value : expected) {
        double found = 0;
        REQUIRE(numbers >> found);
        CHECK(found == Approx(value).margin(1e-5));
    }
    CHECK(expected.size() == 3);
}

TEST_CASE("tools/read_checkpoint.py reads a checkpoint into a dictionary", "[cli-export]") {
    const std::string python = python_with("h5py, numpy");
    if (python.empty()) {
        WARN("skipped: there is no python3 with h5py and numpy (Debian: python3-h5py)");
        return;
    }
    const TempDir folder;
    const Run run = image_run(folder);
    run.expect(0);
    const fs::path tools = source_dir() / "tools", path = run.best_path();
    const Checkpoint saved = read_checkpoint(path);
    export_to(path, folder / "w.safetensors");
    // Every array as hexadecimal bytes: the dictionary is compared with what the program itself reads.
    const std::string script =
        "import sys; sys.dont_write_bytecode = True; sys.path.insert(0, '" + tools.string() +
        "')\n"
        "from read_checkpoint import read_checkpoint\n"
        "c = read_checkpoint('" +
        path.string() +
        "')\n"
        "for kind, arrays in {'': c['model'], **{s + '/': a for s, a in c['optim'].items()}}.items():\n"
        "    for name, array in arrays.items(): print(kind + name, array.astype('<f4').tobytes().hex())\n"
        "print('position', c['position']['updates'], c['position']['best'] == max(c['position']['best'], "
        "0))\n"
        "print('facts', c['optimizer'], c['sample'], c['outputs'], c['shift'].shape, len(c['ema']), "
        "'[train]' in c['config'])\n";
    const Result result = trireme::testing::run({python, "-c", script});
    INFO(result.err);
    REQUIRE(result.status == 0);
    const auto hex = [](const std::vector<float>& values) {
        std::string text;
        const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
        for (std::size_t i = 0; i < 4 * values.size(); ++i)
            for (const int digit : {bytes[i] >> 4, bytes[i] & 15}) text += "0123456789abcdef"[digit];
        return text;
    };
    for (const auto* tensors : {&saved.weights, &saved.states})
        for (const auto& [name, values] : *tensors)
            CHECK_THAT(result.out, contains(name + " " + hex(values) + "\n"));
    CHECK(saved.states.size() == 9);  // momentum of every weight, not of the statistics
    CHECK_THAT(
        result.out,
        contains("position " + std::to_string(static_cast<int>(saved.position.at("updates"))) + " True"));
    CHECK_THAT(result.out, contains("facts sgd (2, 8, 8) 5 (2,) 11 True"));

    const Result shown =
        trireme::testing::run({python, (tools / "read_checkpoint.py").string(), path.string()});
    CHECK(shown.status == 0);
    CHECK_THAT(shown.out, contains("optimizer: sgd (momentum)"));
    CHECK_THAT(shown.out, contains("4x2x3x3"));
    for (const fs::path& bad : {folder / "train.h5", folder / "missing.h5"}) {
        const Result refused =
            trireme::testing::run({python, (tools / "read_checkpoint.py").string(), bad.string()});
        CHECK(refused.status == 1);
        CHECK_THAT(refused.err, contains(bad.filename().string()));
        CHECK(refused.err.find("Traceback") == std::string::npos);
    }

    // The same values leave as safetensors, read by ten lines of Python and numpy.
    const std::string second =
        "import sys, json, struct, numpy; sys.dont_write_bytecode = True; sys.path.insert(0, '" +
        tools.string() +
        "')\n"
        "from read_checkpoint import read_checkpoint\n"
        "c = read_checkpoint('" +
        path.string() +
        "')['model']\n"
        "raw = open('" +
        (folder / "w.safetensors").string() +
        "', 'rb').read()\n"
        "n = struct.unpack('<Q', raw[:8])[0]\n"
        "head = json.loads(raw[8:8 + n]); head.pop('__metadata__')\n"
        "t = {k: numpy.frombuffer(raw[8 + n:][slice(*v['data_offsets'])], '<f4').reshape(v['shape']) for k, "
        "v in head.items()}\n"
        "same = lambda ours, theirs: c[ours].tobytes() == t[theirs].tobytes() and c[ours].shape == "
        "t[theirs].shape\n"
        "print(len(t) == len(c) and same('0.conv.weight', '0.weight') and same('head.weight', "
        "'head.weight'))\n";
    const Result compared = trireme::testing::run({python, "-c", second});
    INFO(compared.err);
    CHECK(compared.out == "True\n");
}
