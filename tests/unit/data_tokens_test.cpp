// Token data: one stream of tokens through all files, cut into windows in which each token but the first is a
// target once.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "comm/mpi_communicator.hpp"
#include "support/catch.hpp"
#include "support/data_files.hpp"
#include "support/process.hpp"
#include "trireme/base/error.hpp"
#include "trireme/data/import.hpp"
#include "trireme/data/loader.hpp"

using namespace trireme;
using namespace trireme::testing;
namespace fs = std::filesystem;

namespace {

using Tokens = std::vector<std::int32_t>;

/// Tokens that differ from their neighbours; below 120, so that every type holds them.
Tokens some_tokens(std::int64_t count) {
    Tokens tokens;
    for (std::int64_t i = 0; i < count; ++i)
        tokens.push_back(static_cast<std::int32_t>((37 * i + i * i) % 120));
    return tokens;
}

Tokens counted_tokens(std::int64_t count) {
    Tokens tokens;
    for (std::int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<std::int32_t>(i));
    return tokens;
}

struct Corpus {
    TempDir dir;
    MpiCommunicator comm{MPI_COMM_SELF, false};

    /// Files of these sizes, part-0.h5, ...
    void write(const Tokens& tokens, const std::vector<std::int64_t>& sizes, const Storage& stored) {
        auto at = tokens.begin();
        for (std::size_t i = 0; i < sizes.size(); at += sizes[i++]) {
            Storage storage = stored;
            storage.chunk_rows = std::min(stored.chunk_rows, sizes[i]);  // HDF5 wants whole chunks
            if (storage.chunk_rows == 0) storage.deflate = 0;
            add_dataset(dir / ("part-" + std::to_string(i) + ".h5"), "/tokens", Shape{sizes[i]},
                        {at, at + sizes[i]}, storage);
        }
    }
    DatasetLayout open(std::int64_t context, const std::string& kind = "auto") {
        return open_dataset(comm, (dir / "*.h5").string(), {.kind = kind, .context = context});
    }
    std::string refused(const std::function<void()>& action, Status status = Status::bad_data) {
        try {
            action();
        } catch (const Error& error) {
            CHECK(error.status() == status);
            return error.what();
        }
        return "no error";
    }
    std::string refused_to_open(const std::string& kind = "auto") {
        return refused([&] { open(4, kind); });
    }
};

LoaderOptions options_for(const DatasetLayout& layout, std::int64_t batch, std::int64_t lanes = 1) {
    LoaderOptions options;
    options.plan = {layout.rows(), batch, lanes, false};
    options.my_lanes = {0, lanes};
    options.shuffle = Shuffle::none;
    return options;
}

struct Windows {
    std::vector<std::int64_t> ids;
    std::vector<Tokens> x, y;
    friend bool operator==(const Windows&, const Windows&) = default;
};

/// The windows of this rank's lanes in the steps from `step` to the end of an epoch, as they come.
Windows load(const DatasetLayout& layout, const LoaderOptions& options, std::int64_t step = 0) {
    const std::int64_t context = layout.sample[0];
    Loader loader(layout, options);
    loader.start(0, step);
    Windows windows;
    for (; step < options.plan.steps(); ++step)
        for (const LaneBatch& batch : loader.next_step()) {
            REQUIRE(batch.x.shape == Shape{batch.samples(), context});
            REQUIRE(batch.y.shape == Shape{batch.samples(), context});
            const auto x = batch.x.span<std::int32_t>(), y = batch.y.span<std::int32_t>();
            for (std::int64_t i = 0; i < batch.samples(); ++i) {
                windows.ids.push_back(batch.ids[static_cast<std::size_t>(i)]);
                windows.x.emplace_back(x.begin() + i * context, x.begin() + (i + 1) * context);
                windows.y.emplace_back(y.begin() + i * context, y.begin() + (i + 1) * context);
            }
        }
    return windows;
}

/// Window `id` by the definition.
void check_window(const Tokens& tokens, std::int64_t id, std::int64_t context, const Tokens& x,
                  const Tokens& y) {
    for (std::int64_t i = 0; i < context; ++i) {
        const auto at = static_cast<std::size_t>(id * context + i), k = static_cast<std::size_t>(i);
        const bool inside = at + 1 < tokens.size();
        REQUIRE(x[k] == (inside ? tokens[at] : 0));
        REQUIRE(y[k] == (inside ? tokens[at + 1] : -100));
    }
}

}  // namespace

TEST_CASE("windows cover the tokens, the last one padded", "[unit][data]") {
    Corpus corpus;
    const std::int64_t count = GENERATE(2, 3, 9, 10, 11, 64, 65), context = GENERATE(1, 4, 9, 64, 1000);
    const Tokens tokens = some_tokens(count);
    corpus.write(tokens, {count}, {DType::u8});
    const DatasetLayout layout = corpus.open(context);
    CHECK(layout.is_tokens());
    CHECK(layout.sample == Shape{context});
    CHECK(layout.target == Shape{context});
    CHECK_FALSE(layout.has_targets());
    REQUIRE(layout.rows() == (count - 1 + context - 1) / context);
    const Windows windows = load(layout, options_for(layout, 3));
    REQUIRE(static_cast<std::int64_t>(windows.ids.size()) == layout.rows());
    for (std::size_t w = 0; w < windows.ids.size(); ++w) {
        REQUIRE(windows.ids[w] == static_cast<std::int64_t>(w));
        check_window(tokens, windows.ids[w], context, windows.x[w], windows.y[w]);
    }
}

TEST_CASE("windows run across files of any form, from memory or from the files", "[unit][data]") {
    Corpus corpus;
    const Storage storage =
        GENERATE(Storage{DType::u8}, Storage{DType::u16, true, 16, 3}, Storage{DType::u32, true},
                 Storage{DType::i8, false, 7}, Storage{DType::i16, true}, Storage{DType::i32},
                 Storage{DType::i64}, Storage{DType::u64, true, 5});
    const Tokens tokens = some_tokens(301);
    corpus.write(tokens, {1, 0, 2, 97, 0, 200, 1}, storage);
    const DatasetLayout layout = corpus.open(7);
    CHECK(layout.x_type == storage.type);
    LoaderOptions options = options_for(layout, 8, 3);
    options.shuffle = GENERATE(Shuffle::full, Shuffle::none, Shuffle::chunk);
    options.chunk = 6;
    options.cache = "memory";
    const Windows cached = load(layout, options);
    options.cache = "none";
    CHECK(load(layout, options) == cached);
    REQUIRE(cached.ids.size() == 43);
    for (std::size_t w = 0; w < cached.ids.size(); ++w)
        check_window(tokens, cached.ids[w], 7, cached.x[w], cached.y[w]);
}

TEST_CASE("files may differ in the width of their tokens", "[unit][data]") {
    Corpus corpus;
    add_dataset(corpus.dir / "a.h5", "/tokens", Shape{2}, {255, 1}, {DType::u8});
    add_dataset(corpus.dir / "b.h5", "/tokens", Shape{2}, {70000, 2}, {DType::u32, true});
    const DatasetLayout layout = corpus.open(3);
    CHECK(layout.x_type == DType::u32);
    const Windows windows = load(layout, options_for(layout, 1));
    CHECK(windows.x == std::vector<Tokens>{{255, 1, 70000}});
    CHECK(windows.y == std::vector<Tokens>{{1, 70000, 2}});
    CHECK(count_classes(corpus.comm, layout, -100) == 70001);
}

TEST_CASE("each token but the first is a target exactly once an epoch, on any number of ranks",
          "[unit][data]") {
    Corpus corpus;
    corpus.write(counted_tokens(1000), {400, 1, 599}, {DType::u16});
    const DatasetLayout layout = corpus.open(GENERATE(1, 13, 256));
    const std::int64_t ranks = GENERATE(1, 2, 3, 4);
    LoaderOptions options = options_for(layout, 10, 7);
    options.shuffle = Shuffle::full;
    std::vector<int> as_target(1000, 0);
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
        options.my_lanes = part_of({0, 7}, ranks, rank);
        for (const Tokens& targets : load(layout, options).y)
            for (const std::int32_t token : targets)
                if (token != -100) ++as_target[static_cast<std::size_t>(token)];
    }
    CHECK(as_target[0] == 0);
    CHECK(std::vector<int>(as_target.begin() + 1, as_target.end()) == std::vector<int>(999, 1));
}

TEST_CASE("going on within an epoch gives the rest of its windows", "[unit][data]") {
    Corpus corpus;
    corpus.write(some_tokens(200), {120, 80}, {DType::u8});
    const DatasetLayout layout = corpus.open(6);
    LoaderOptions options = options_for(layout, 8, 2);
    options.shuffle = Shuffle::full;
    const Windows all = load(layout, options), rest = load(layout, options, 2);
    REQUIRE(rest.ids.size() == all.ids.size() - 16);
    CHECK(std::equal(rest.x.begin(), rest.x.end(), all.x.begin() + 16));
    CHECK(std::equal(rest.y.begin(), rest.y.end(), all.y.begin() + 16));
}

TEST_CASE("auto takes tokens only where there is no x", "[unit][data]") {
    Corpus corpus;
    write_samples(corpus.dir / "a.h5", numbered_samples(4, Shape{2}));
    add_dataset(corpus.dir / "a.h5", "/tokens", Shape{9}, std::vector<double>(9, 1.0), {DType::u8});
    CHECK_FALSE(corpus.open(4).is_tokens());
    CHECK_FALSE(corpus.open(4, "samples").is_tokens());
    CHECK(corpus.open(4, "tokens").rows() == 2);
    CHECK_THAT(corpus.refused([&] { corpus.open(4, "images"); }, Status::bad_usage), contains("data.kind"));
    CHECK_THAT(corpus.refused([&] { corpus.open(0, "tokens"); }, Status::bad_usage),
               contains("model.context: expected 1 to"));
}

TEST_CASE("token files that do not fit are refused with file, data set, expected and found", "[unit][data]") {
    Corpus corpus;
    corpus.write(some_tokens(30), {10, 20}, {DType::u8});
    const fs::path second = corpus.dir / "part-1.h5";
    fs::remove(second);

    SECTION("without tokens") {
        write_samples(second, numbered_samples(4, Shape{2}));
        CHECK_THAT(corpus.refused_to_open(), contains("part-1.h5:/tokens: expected a data set, found none"));
        CHECK_THAT(corpus.refused_to_open("samples"),
                   contains("part-0.h5:/x: expected a data set, found none"));
    }
    SECTION("real numbers") {
        add_dataset(second, "/tokens", Shape{3}, {1, 2, 3}, {DType::f32});
        CHECK_THAT(corpus.refused_to_open(), contains("part-1.h5:/tokens: expected integers, found float32"));
    }
    SECTION("texts") {
        add_strings(second, "/tokens", {"seven"});
        CHECK_THAT(corpus.refused_to_open(), contains("part-1.h5:/tokens: expected numbers, found strings"));
    }
    SECTION("two extents") {
        add_dataset(second, "/tokens", Shape{2, 3}, {1, 2, 3, 4, 5, 6}, {DType::u8});
        CHECK_THAT(corpus.refused_to_open(), contains("part-1.h5:/tokens: expected tokens [n], found 2x3"));
    }
    SECTION("cut to 60 %") {
        add_dataset(second, "/tokens", Shape{4000}, std::vector<double>(4000, 1.0), {DType::u8});
        truncate_file(second, 0.6);
        CHECK_THAT(corpus.refused_to_open(), contains("part-1.h5: expected a file of "));
        CHECK_THAT(corpus.refused_to_open(), contains("(wanted: /tokens)"));
    }
    SECTION("a single token") {
        fs::remove(corpus.dir / "part-0.h5");
        add_dataset(second, "/tokens", Shape{1}, {1}, {DType::u8});
        CHECK_THAT(corpus.refused_to_open(),
                   contains("/tokens: expected at least two tokens, found 1 in 1 file(s)"));
    }
    SECTION("a value that is no token") {
        const double value = GENERATE(-3.0, 3e9);
        add_dataset(second, "/tokens", Shape{4}, {1, 2, value, 4}, {DType::i64});
        const DatasetLayout layout = corpus.open(5);
        const std::string message = "part-1.h5:/tokens row 2: expected a token ";
        const std::string counted = corpus.refused([&] { count_classes(corpus.comm, layout, -100); });
        CHECK_THAT(counted, contains(message));
        CHECK_THAT(counted, contains(value < 0 ? "found -3" : "found 3000000000"));
        CHECK_THAT(corpus.refused([&] { load(layout, options_for(layout, 1)); }), contains(message));
    }
    SECTION("more than the vocabulary") {
        add_dataset(second, "/tokens", Shape{2}, {119, 120}, {DType::u8});
        const DatasetLayout layout = corpus.open(5);
        LoaderOptions options = options_for(layout, 1);
        options.classes = 120;
        CHECK_THAT(corpus.refused([&] { load(layout, options); }),
                   contains("part-1.h5:/tokens row 1: expected a token from 0 to 119, found 120"));
    }
}

TEST_CASE("what has no meaning for tokens is refused", "[unit][data]") {
    Corpus corpus;
    corpus.write(some_tokens(20), {20}, {DType::u8});
    const DatasetLayout layout = corpus.open(4);
    const auto refused = [&](const std::function<void(LoaderOptions&)>& change) {
        LoaderOptions options = options_for(layout, 2);
        change(options);
        return corpus.refused([&] { Loader(layout, options); }, Status::bad_usage);
    };
    CHECK_THAT(refused([](auto& o) { o.flip = true; }), contains("data.augment: expected none"));
    CHECK_THAT(refused([](auto& o) {
                   o.normalization = {{1.0f}, {2.0f}};
               }),
               contains("data.normalize: expected none"));
    CHECK_THAT(refused([](auto& o) { o.class_labels = false; }),
               contains("model.loss: expected cross_entropy"));
    for (const char* kind : {"unit", "standard"})
        CHECK_THAT(corpus.refused([&] { make_normalization(corpus.comm, layout, kind); }, Status::bad_usage),
                   contains("data.normalize=" + std::string(kind) + ": expected none for token data"));
    CHECK(make_normalization(corpus.comm, layout, "none").identity());
}

TEST_CASE("texts follow each other and are cut, not drawn, into parts and shards", "[unit][data]") {
    Corpus corpus;
    // More than the writer's buffer, and a border of files and of parts within it.
    std::string text;
    for (std::size_t i = 0; i < 3'000'001; ++i) text.push_back(static_cast<char>(i * 7 % 251));
    write_file(corpus.dir / "a.txt", text.substr(0, 1'300'000));
    write_file(corpus.dir / "b.gz", gzip_bytes(text.substr(1'300'000)));
    ImportOptions options;
    options.inputs = {corpus.dir / "a.txt", corpus.dir / "b.gz"};
    options.output = corpus.dir / "out";
    options.split = {0.9, 0.1};
    options.shards = 3;
    options.chunk_rows = GENERATE(0, 100'000);
    const ImportResult result = import_data(options);
    CHECK(result.tokens);
    CHECK(result.classes == 251);
    REQUIRE(result.parts.size() == 2);
    CHECK(result.parts[0].rows == 2'700'001);
    CHECK(result.parts[1].rows == 300'000);
    std::string found;
    for (const ImportedPart& part : result.parts) {
        REQUIRE(part.files.size() == 3);
        for (const std::string& file : part.files)
            for (const double value : read_values(file, "/tokens"))
                found.push_back(static_cast<char>(static_cast<unsigned char>(value)));
    }
    CHECK(found == text);
}
