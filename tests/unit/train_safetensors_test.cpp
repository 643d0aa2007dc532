// The safetensors format: what is written and read, and every way in which a file can be wrong.
#include <sys/resource.h>

#include <bit>
#include <csignal>
#include <filesystem>
#include <limits>

#include "support/catch.hpp"
#include "support/safetensors.hpp"
#include "train/safetensors.hpp"
#include "train/torch_names.hpp"
#include "trireme/base/error.hpp"

using namespace trireme;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

/// What the reader says of a file with this content.
std::string refusal(const TempDir& folder, const std::string& content) {
    const fs::path path = folder / "bad.safetensors";
    write_file(path, content);
    try {
        const SafetensorsFile file(path.string());
    } catch (const Error& error) {
        CHECK(error.status() == Status::bad_data);
        CHECK(std::string(error.what()).starts_with(path.string() + ": "));
        return std::string(error.what()).substr(path.string().size() + 2);
    }
    return "(accepted)";
}

std::string refusal_of_header(const TempDir& folder, const std::string& header, std::size_t bytes = 16) {
    return refusal(folder, raw_file(header, std::string(bytes, 'x')));
}

void write_one(const std::string& path, float value) {
    SafetensorsWriter writer(path, {{.name = "w", .shape = {4}}}, {});
    const std::vector<float> values(4, value);
    writer.write(values.data(), 16);
    writer.finish();
}

std::ptrdiff_t files_in(const TempDir& folder) {
    return std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator());
}

}  // namespace

TEST_CASE("tensors of every type and shape go into a file and come back", "[unit][train]") {
    const TempDir folder;
    const std::string path = folder / "t.safetensors";
    const std::vector<SafetensorsEntry> tensors = {
        {.name = "z", .dtype = DType::f32, .shape = {2, 3}},
        {.name = "half", .dtype = DType::bf16, .shape = {3}},
        {.name = "a \"quoted\" \xC3\xA9", .dtype = DType::f16, .shape = {1, 1, 1, 1, 1, 2}},
        {.name = "scalar", .dtype = DType::i64, .shape = {}},
        {.name = "empty", .dtype = DType::f32, .shape = {0, 7}},
        {.name = "byte", .dtype = DType::u8, .shape = {5}},
    };
    std::string bytes;
    for (int i = 0; i < 24 + 6 + 4 + 8 + 5; ++i) bytes += static_cast<char>(37 * i);
    {
        SafetensorsWriter writer(path, tensors, {{"format", "pt"}, {"note", "\n\"x\""}});
        writer.write(bytes.data(), 10);  // in pieces that know nothing of the tensors
        writer.write(bytes.data() + 10, static_cast<std::int64_t>(bytes.size()) - 10);
        CHECK_FALSE(fs::exists(path));
        const std::int64_t written = writer.finish();
        CHECK(written == static_cast<std::int64_t>(fs::file_size(path)));
    }
    CHECK(files_in(folder) == 1);
    CHECK(raw_header(read_file(path)).size() == 7);
    const RawTensors raw = read_raw(path);
    CHECK(raw.at("z").bytes == bytes.substr(0, 24));
    CHECK(raw.at("half").type == "BF16");
    CHECK(raw.at("scalar").shape.empty());
    CHECK(raw.at("scalar").bytes == bytes.substr(34, 8));

    const SafetensorsFile file(path);
    CHECK(file.metadata() == SafetensorsMetadata{{"format", "pt"}, {"note", "\n\"x\""}});
    CHECK(file.entries().size() == tensors.size());
    for (const SafetensorsEntry& tensor : tensors) {
        INFO(tensor.name);
        const SafetensorsEntry* found = file.find(tensor.name);
        REQUIRE(found != nullptr);
        CHECK(found->dtype == tensor.dtype);
        CHECK(found->shape == tensor.shape);
        std::string read(raw.at(tensor.name).bytes.size(), '\0');
        file.read(*found, {0, tensor.shape.count()}, read.data());
        CHECK(read == raw.at(tensor.name).bytes);
    }
    CHECK(file.find("y") == nullptr);
    float two[2];
    file.read(*file.find("z"), {3, 5}, two);
    CHECK(std::memcmp(two, bytes.data() + 12, 8) == 0);

    std::uint64_t length = 0;
    std::memcpy(&length, read_file(path).data(), 8);
    CHECK(length % 8 == 0);  // elements are aligned

    SafetensorsWriter(folder / "none.safetensors", {}, {}).finish();
    CHECK(SafetensorsFile(folder / "none.safetensors").entries().empty());
}

TEST_CASE("files that are cut off or no safetensors at all are refused", "[unit][train]") {
    const TempDir folder;
    const std::string good =
        raw_file({{"w", {"F32", {2, 2}, std::string(16, 'x')}}, {"v", {"BF16", {3}, std::string(6, 'y')}}});
    CHECK(refusal(folder, good) == "(accepted)");
    for (std::size_t length = 0; length < good.size(); ++length) {
        INFO(length);
        const std::string why = refusal(folder, good.substr(0, length));
        CHECK_THAT(why, contains(length < 8 ? "fewer than any" : "cut off"));
    }
    CHECK_THAT(refusal(folder, good + "z"), contains("take 22 bytes, but the file has 23"));

    CHECK_THAT(refusal(folder, "\x89HDF\r\n\x1a\n" + std::string(2000, ' ')),
               contains("is it a safetensors file?"));
    const auto with_length = [&](std::uint64_t length) {
        return std::string(reinterpret_cast<const char*>(&length), 8) + good.substr(8);
    };
    CHECK_THAT(refusal(folder, with_length(100'000'001)), contains("at most 100000000 are accepted"));
    CHECK_THAT(refusal(folder, with_length(std::numeric_limits<std::uint64_t>::max())), contains("at most"));
    CHECK_THAT(refusal(folder, with_length(100'000'000)),
               contains("cut off: the header ends at byte 100000008"));
    CHECK_THAT(refusal(folder, with_length(3)), contains("the header is no JSON object"));
    CHECK_THAT(refusal(folder, raw_file("", "")), contains("the header is no JSON object"));
    CHECK_THAT(refusal(folder, raw_file("[1, 2]", "")), contains("the header is no JSON object"));
    CHECK_THAT(refusal(folder, raw_file("{\"w\": \"\xFF\"}", "")), contains("the header is no JSON object"));

    try {
        const SafetensorsFile missing(folder / "missing.safetensors");
        FAIL("a missing file was opened");
    } catch (const Error& error) {
        CHECK(error.status() == Status::bad_data);
        CHECK_THAT(error.what(), contains("missing.safetensors: cannot be opened: No such file"));
    }
    CHECK_THROWS_AS(SafetensorsFile(folder.path().string()), Error);
}

TEST_CASE("damaged headers are refused by the tensor's name", "[unit][train]") {
    const TempDir folder;
    const auto entry = [](const std::string& name, const std::string& type, const std::string& shape,
                          const std::string& offsets) {
        return "\"" + name + R"(":{"dtype":)" + type + R"(,"shape":)" + shape + R"(,"data_offsets":)" +
               offsets + "}";
    };
    const auto one = [&](const std::string& type, const std::string& shape, const std::string& offsets) {
        return refusal_of_header(folder, "{" + entry("w", type, shape, offsets) + "}");
    };
    CHECK(one("\"F32\"", "[2,2]", "[0,16]") == "(accepted)");
    for (const auto& [type, shape, offsets, why] :
         {std::tuple{"\"BOOL\"", "[16]", "[0,16]", "its dtype is \"BOOL\", expected F32, BF16 or F16"},
          {"\"F8_E4M3\"", "[16]", "[0,16]", "its dtype is \"F8_E4M3\""},
          {"4", "[4]", "[0,16]", "its dtype is 4"},
          {"\"F32\"", "4", "[0,16]", "its shape is 4"},
          {"\"F32\"", "[-4]", "[0,16]", "its shape is [-4], expected whole numbers"},
          {"\"F32\"", "[4.0]", "[0,16]", "expected whole numbers"},
          {"\"F32\"", "[1,1,1,1,1,1,4]", "[0,16]", "expected at most 6 extents"},
          {"\"F32\"", "[4]", "[0]", "its data_offsets are [0], expected [begin, end]"},
          {"\"F32\"", "[4]", "[16,0]", "its data_offsets are [16,0]"},
          {"\"F32\"", "[4]", "[-16,0]", "its data_offsets are [-16,0]"},
          {"\"F32\"", "[4]", "[0,18446744073709551615]", "its data_offsets are"},
          {"\"F32\"", "[3]", "[0,16]", "span 16 bytes, but its shape [3] of F32 takes 12"},
          {"\"F32\"", "[4294967296,4294967296,4294967296]", "[0,16]", "takes more than any file has"},
          {"\"F32\"", "[9223372036854775807]", "[0,16]", "takes more than any file has"}}) {
        INFO(type << " " << shape << " " << offsets);
        const std::string found = one(type, shape, offsets);
        CHECK_THAT(found, contains("tensor w: "));
        CHECK_THAT(found, contains(why));
    }

    const auto two = [&](const std::string& first, const std::string& second, std::size_t bytes = 16) {
        return refusal_of_header(
            folder,
            "{" + entry("a", "\"F32\"", "[2]", first) + "," + entry("b", "\"F32\"", "[2]", second) + "}",
            bytes);
    };
    CHECK(two("[0,8]", "[8,16]") == "(accepted)");
    CHECK(two("[8,16]", "[0,8]") == "(accepted)");
    CHECK_THAT(two("[0,8]", "[4,12]", 12),
               contains("tensor b begins at byte 4, overlapping tensor a, which ends at 8"));
    CHECK_THAT(two("[0,8]", "[0,8]", 8), contains("tensor b begins at byte 0, overlapping tensor a"));
    CHECK_THAT(two("[0,8]", "[12,20]", 20),
               contains("tensor b begins at byte 12, leaving a gap after tensor a"));
    CHECK_THAT(two("[4,12]", "[12,20]", 20),
               contains("tensor a begins at byte 4, leaving a gap after the header"));
    CHECK_THAT(two("[0,8]", "[8,16]", 12),
               contains("cut off: the tensors take 16 bytes, but the file has 12"));

    CHECK_THAT(refusal_of_header(folder, R"({"w":{"dtype":"F32","shape":[4]}})"),
               contains("tensor w: expected an object"));
    CHECK_THAT(refusal_of_header(folder, R"({"w":7})"), contains("tensor w: expected an object"));
    CHECK_THAT(refusal_of_header(folder, "{" + entry("w", "\"F32\"", "[4]", "[0,16]") + "," +
                                             entry("w", "\"F32\"", "[4]", "[0,16]") + "}"),
               contains("the header has \"w\" twice"));
    CHECK_THAT(refusal_of_header(folder, R"({"__metadata__":{"format":1}})"),
               contains("__metadata__: format is no text"));
    CHECK_THAT(refusal_of_header(folder, R"({"__metadata__":[]})"), contains("__metadata__ is no object"));
    CHECK_THAT(refusal_of_header(folder, "{" + std::string(5000, ' ') + "}", 1),
               contains("take 0 bytes, but the file has 1"));
}

TEST_CASE("a file that cannot be written whole leaves the older one as it was", "[unit][train]") {
    const TempDir folder;
    const std::string path = folder / "w.safetensors";
    write_one(path, 1);
    const std::string before = read_file(path);

    SECTION("given up halfway") {
        SafetensorsWriter writer(path, {{.name = "w", .shape = {4}}}, {});
        writer.write(before.data(), 8);
        CHECK_THROWS_WITH(writer.finish(), contains("bytes were written where the tensors take"));
    }
    SECTION("no space") {
        rlimit usual{};
        getrlimit(RLIMIT_FSIZE, &usual);
        auto* const handler = std::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{70, usual.rlim_max};
        setrlimit(RLIMIT_FSIZE, &limit);
        std::string said;
        try {
            write_one(path, 2);
        } catch (const Error& error) {
            said = error.what();
            CHECK(error.status() == Status::failed);
        }
        setrlimit(RLIMIT_FSIZE, &usual);
        std::signal(SIGXFSZ, handler);
        CHECK_THAT(said, contains(path + ": cannot be written: File too large"));
    }
    SECTION("no folder") {
        CHECK_THROWS_WITH(write_one(folder / "no/w.safetensors", 2),
                          contains("cannot be created: No such file"));
    }
    CHECK(read_file(path) == before);
    CHECK(files_in(folder) == 1);
    write_one(path, 2);
    CHECK(read_file(path) != before);
}

TEST_CASE("parameters get the names that PyTorch has for them", "[unit][train]") {
    const std::vector<std::string> layers = {
        "conv out=4 kernel=3",
        "batchnorm",
        "relu",
        "linear out=3 name=fc.out",
        "attention heads=2",
        "attention heads=2 name=block1.attention",
        "swiglu hidden=4",
        "linear out=2 name=fc",
        "embedding dim=4 name=embed",
        "rmsnorm",
        "linear out=2",
    };
    const std::pair<const char*, const char*> pairs[] = {
        {"0.conv.weight", "0.weight"},
        {"0.conv.bias", "0.bias"},
        {"1.batchnorm.running_mean", "1.running_mean"},
        {"fc.out.weight", "fc.out.weight"},
        {"4.attention.q.weight", "4.q_proj.weight"},
        {"4.attention.out.bias", "4.out_proj.bias"},
        {"block1.attention.k.weight", "block1.attention.k_proj.weight"},
        {"6.swiglu.gate.weight", "6.gate_proj.weight"},
        {"6.swiglu.down.weight", "6.down_proj.weight"},
        {"fc.weight", "fc.weight"},
        {"embed.weight", "embed.weight"},
        {"9.rmsnorm.weight", "9.weight"},
        {"10.linear.weight", "10.weight"},
        {"of.no.layer", "of.no.layer"},
    };
    std::vector<std::string> ours, theirs;
    for (const auto& [own, torch] : pairs) {
        ours.emplace_back(own);
        theirs.emplace_back(torch);
    }
    CHECK(torch_names(layers, ours) == theirs);
    CHECK_THROWS_WITH(torch_names({"linear out=2", "linear out=2 name=0"}, {"0.linear.weight", "0.weight"}),
                      contains("0.linear.weight and 0.weight would both be called 0.weight"));
}
