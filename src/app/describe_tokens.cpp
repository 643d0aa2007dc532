#include <nlohmann/json.hpp>

#include "app/describe.hpp"
#include "app/text.hpp"

namespace trireme::app {
namespace {

std::string text_of(const std::string& patterns, const DatasetLayout& layout, std::int64_t largest,
                    bool windows) {
    Table facts("<<");
    facts.add({"tokens", grouped(layout.stored_rows()) + " in " + std::to_string(layout.shards.size()) +
                             (layout.shards.size() == 1 ? " file" : " files")});
    facts.add(
        {layout.x_name, std::string(name_of(layout.x_type)) + ", the largest " + std::to_string(largest)});
    if (windows)
        facts.add({"windows", grouped(layout.rows()) + " of " + grouped(layout.sample[0]) + " tokens"});
    Table files("<>");
    for (const Shard& shard : layout.shards) files.add({shard.path, grouped(shard.ids.size()) + " tokens"});
    return "data set " + patterns + "\n" + facts.text() + "\n" + files.text();
}

std::string json_of(const DatasetLayout& layout, std::int64_t largest, bool windows) {
    nlohmann::ordered_json object = {{"kind", "tokens"},
                                     {"tokens", layout.stored_rows()},
                                     {"type", name_of(layout.x_type)},
                                     {"largest", largest}};
    if (windows) {
        object["context"] = layout.sample[0];
        object["windows"] = layout.rows();
    }
    object["files"] = nlohmann::ordered_json::array();
    for (const Shard& shard : layout.shards)
        object["files"].push_back({{"path", shard.path}, {"tokens", shard.ids.size()}});
    return object.dump() + "\n";
}

}  // namespace

std::string describe_tokens(Runtime& runtime, const std::string& patterns, const DatasetLayout& layout,
                            bool windows, bool json) {
    const std::int64_t largest = count_classes(runtime.session.world(), layout, 0) - 1;
    return json ? json_of(layout, largest, windows) : text_of(patterns, layout, largest, windows);
}

}  // namespace trireme::app
