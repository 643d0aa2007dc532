#include <algorithm>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>

#include "app/describe.hpp"
#include "app/text.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/comm/agree.hpp"
#include "trireme/data/dataset.hpp"
#include "trireme/io/hdf5.hpp"

namespace trireme::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t values_at_once = std::int64_t{1} << 20;
constexpr std::int64_t most_values = std::int64_t{1} << 26;  ///< looked at for the range: a few seconds
constexpr std::size_t most_labels = 100;                     ///< classes that the histogram prints

/// Smallest, largest and mean of what was looked at.
struct Spread {
    std::int64_t rows = 0;
    double least = std::numeric_limits<double>::infinity(), most = -std::numeric_limits<double>::infinity();
    double sum = 0;
    std::int64_t count = 0, not_finite = 0;

    void add(double value) {
        if (!(value - value == 0)) {
            ++not_finite;
            return;
        }
        least = std::min(least, value);
        most = std::max(most, value);
        sum += value;
        ++count;
    }
    double mean() const { return count > 0 ? sum / static_cast<double>(count) : 0; }
};

/// Rows of one data set through all shards, a block at a time, until about `limit` values have been seen.
template <class T, class Visit>
std::int64_t visit_rows(const DatasetLayout& layout, const std::string& name, std::int64_t row_values,
                        std::int64_t limit, const Visit& visit) {
    const std::int64_t rows_at_once =
        std::max<std::int64_t>(1, values_at_once / std::max<std::int64_t>(1, row_values));
    std::vector<T> block;
    std::int64_t seen = 0;
    for (const Shard& shard : layout.shards) {
        if (shard.ids.empty()) continue;
        const io::Dataset dataset = io::File(shard.path, io::Access::read).open(name);
        for (std::int64_t row = 0; row < shard.ids.size(); row += rows_at_once) {
            if (seen * row_values >= limit) return seen;
            const Range rows{row, std::min(row + rows_at_once, shard.ids.size())};
            block.resize(static_cast<std::size_t>(rows.size() * row_values));
            dataset.read_rows(rows, dtype_of<T>, block.data());
            for (const T value : block) visit(value);
            seen += rows.size();
        }
    }
    return seen;
}

struct Contents {
    Spread x, y;
    std::map<std::int64_t, std::int64_t> labels;  ///< of integer targets: how many of each
    bool has_labels = false;
};

Contents look_at(const DatasetLayout& layout) {
    Contents contents;
    contents.x.rows = visit_rows<double>(layout, layout.x_name, layout.sample.count(), most_values,
                                         [&](double value) { contents.x.add(value); });
    contents.has_labels = layout.target.rank() == 0 && !is_real(layout.y_type);
    if (contents.has_labels)
        visit_rows<std::int64_t>(layout, layout.y_name, 1, std::numeric_limits<std::int64_t>::max(),
                                 [&](std::int64_t label) { ++contents.labels[label]; });
    else
        contents.y.rows = visit_rows<double>(layout, layout.y_name, layout.target.count(), most_values,
                                             [&](double value) { contents.y.add(value); });
    return contents;
}

std::string text_of(const Spread& spread, std::int64_t rows) {
    if (spread.count == 0 && spread.not_finite == 0) return "no values";
    std::string text =
        to_text(spread.least) + " to " + to_text(spread.most) + ", mean " + fixed(spread.mean(), 4);
    if (spread.count == 0) text = "none finite";
    if (spread.not_finite > 0) text += ", " + grouped(spread.not_finite) + " values not finite";
    if (spread.rows < rows) text += " (of the first " + grouped(spread.rows) + " rows)";
    return text;
}

std::string histogram_of(const Contents& contents, std::int64_t rows) {
    Table table(">>>");
    table.add({"label", "rows", "share"});
    std::size_t shown = 0;
    for (const auto& [label, count] : contents.labels) {
        if (shown++ == most_labels) break;
        table.add(
            {std::to_string(label), grouped(count),
             percent(static_cast<double>(count) / static_cast<double>(std::max<std::int64_t>(1, rows)))});
    }
    std::string text = "\n" + table.text();
    if (contents.labels.size() > most_labels)
        text += "  ... and " + std::to_string(contents.labels.size() - most_labels) + " more labels\n";
    return text;
}

std::string text_of(const std::string& patterns, const DatasetLayout& layout, const Contents& contents) {
    const std::int64_t rows = layout.rows();
    std::string text = "data set " + patterns + "\n";
    Table facts("<<");
    facts.add({"rows", grouped(rows) + " in " + std::to_string(layout.shards.size()) +
                           (layout.shards.size() == 1 ? " file" : " files")});
    facts.add({layout.x_name, layout.sample.text() + " " + std::string(name_of(layout.x_type)) + ", " +
                                  text_of(contents.x, rows)});
    std::string y =
        (layout.target.rank() == 0 ? "" : layout.target.text() + " ") + std::string(name_of(layout.y_type));
    y += contents.has_labels ? ", " + std::to_string(contents.labels.size()) + " labels"
                             : ", " + text_of(contents.y, rows);
    facts.add({layout.y_name, y});
    text += facts.text();

    Table files("<>");
    for (const Shard& shard : layout.shards) files.add({shard.path, grouped(shard.ids.size()) + " rows"});
    text += "\n" + files.text();
    return contents.has_labels ? text + histogram_of(contents, rows) : text;
}

Json json_of(const Spread& spread) {
    const bool any = spread.count > 0;
    return {{"min", any ? Json(spread.least) : Json(nullptr)},
            {"max", any ? Json(spread.most) : Json(nullptr)},
            {"mean", any ? Json(spread.mean()) : Json(nullptr)},
            {"not_finite", spread.not_finite},
            {"rows", spread.rows}};
}

std::string json_of(const DatasetLayout& layout, const Contents& contents) {
    Json object = {{"kind", "dataset"}, {"rows", layout.rows()}};
    object["sample"] = std::vector<std::int64_t>(layout.sample.begin(), layout.sample.end());
    object["x_type"] = name_of(layout.x_type);
    object["target"] = std::vector<std::int64_t>(layout.target.begin(), layout.target.end());
    object["y_type"] = name_of(layout.y_type);
    object["x"] = json_of(contents.x);
    if (contents.has_labels) {
        object["labels"] = Json::object();
        for (const auto& [label, count] : contents.labels) object["labels"][std::to_string(label)] = count;
    } else {
        object["y"] = json_of(contents.y);
    }
    object["files"] = Json::array();
    for (const Shard& shard : layout.shards)
        object["files"].push_back({{"path", shard.path}, {"rows", shard.ids.size()}});
    return object.dump() + "\n";
}

}  // namespace

std::string describe_dataset(Runtime& runtime, const std::string& patterns, const std::string& x_name,
                             const std::string& y_name, std::int64_t context, bool json) {
    Communicator& world = runtime.session.world();
    DatasetOptions options{.x = x_name, .y = y_name};
    if (context > 0) options.context = context;
    const DatasetLayout layout = open_dataset(world, patterns, options);
    if (layout.is_tokens()) return describe_tokens(runtime, patterns, layout, context > 0, json);
    std::string text;
    agreed_by_one(world, [&] {
        const Contents contents = look_at(layout);
        text = json ? json_of(layout, contents) : text_of(patterns, layout, contents);
    });
    return broadcast_text(world, text);
}

}  // namespace trireme::app
