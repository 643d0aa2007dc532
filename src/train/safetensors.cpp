#include "train/safetensors.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "elements are read as they lie in the file");

constexpr std::int64_t longest_header = 100'000'000;  // as in the format's own library

constexpr std::pair<std::string_view, DType> types[] = {
    {"F32", DType::f32}, {"F64", DType::f64}, {"F16", DType::f16}, {"BF16", DType::bf16},
    {"I8", DType::i8},   {"U8", DType::u8},   {"I16", DType::i16}, {"U16", DType::u16},
    {"I32", DType::i32}, {"U32", DType::u32}, {"I64", DType::i64}, {"U64", DType::u64},
};

std::optional<std::int64_t> whole_number(const Json& json) {
    if (!json.is_number_unsigned()) return std::nullopt;
    const auto value = json.get<std::uint64_t>();
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
    return static_cast<std::int64_t>(value);
}

/// Of shape and type; nothing where that is more than a file can have.
std::optional<std::int64_t> bytes_of(const SafetensorsEntry& entry) {
    auto bytes = static_cast<std::int64_t>(size_of(entry.dtype));
    for (const std::int64_t extent : entry.shape)
        if (__builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
    return bytes;
}

/// A tensor as the header describes it, or what is wrong with that.
std::string read_entry(const Json& json, SafetensorsEntry& entry) {
    if (!json.is_object() || !json.contains("dtype") || !json.contains("shape") ||
        !json.contains("data_offsets"))
        return "expected an object with dtype, shape and data_offsets";
    const Json &type = json["dtype"], &shape = json["shape"], &offsets = json["data_offsets"];
    const auto* known = std::find_if(std::begin(types), std::end(types),
                                     [&](const auto& row) { return type.is_string() && type == row.first; });
    if (known == std::end(types)) return "its dtype is " + type.dump() + ", expected F32, BF16 or F16";
    entry.dtype = known->second;
    if (!shape.is_array() || shape.size() > Shape::max_rank)
        return "its shape is " + shape.dump() + ", expected at most " + std::to_string(Shape::max_rank) +
               " extents";
    for (const Json& extent : shape) {
        const auto value = whole_number(extent);
        if (!value) return "its shape is " + shape.dump() + ", expected whole numbers";
        entry.shape.push_back(*value);
    }
    const auto begin = offsets.is_array() && offsets.size() == 2 ? whole_number(offsets[0]) : std::nullopt;
    const auto end = begin ? whole_number(offsets[1]) : std::nullopt;
    if (!end || *end < *begin) return "its data_offsets are " + offsets.dump() + ", expected [begin, end]";
    entry.bytes = {*begin, *end};
    const auto bytes = bytes_of(entry);
    if (bytes != entry.bytes.size())
        return "its data_offsets span " + std::to_string(entry.bytes.size()) + " bytes, but its shape " +
               shape.dump() + " of " + std::string(known->first) + " takes " +
               (bytes ? std::to_string(*bytes) : "more than any file has");
    return "";
}

/// Notes the first name that an object has twice: a JSON parser would silently take the last one.
class RepeatedNames {
public:
    bool operator()(int, Json::parse_event_t event, Json& parsed) {
        if (event == Json::parse_event_t::object_start) open_.emplace_back();
        if (event == Json::parse_event_t::object_end) open_.pop_back();
        if (event == Json::parse_event_t::key && !open_.back().insert(parsed.get<std::string>()).second &&
            found_.empty())
            found_ = parsed.get<std::string>();
        return true;
    }
    const std::string& found() const { return found_; }

private:
    std::vector<std::set<std::string>> open_;
    std::string found_;
};

}  // namespace

bool is_safetensors(const std::string& path) {
    return path.ends_with(".safetensors");
}

std::string_view safetensors_name(DType type) {
    for (const auto& [name, known] : types)
        if (known == type) return name;
    return "?";
}

SafetensorsFile::SafetensorsFile(const std::string& path)
    : path_(path), file_(open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
    if (file_ < 0) throw data_error(path + ": cannot be opened: " + std::generic_category().message(errno));
    try {
        struct stat status {};
        if (fstat(file_, &status) != 0 || !S_ISREG(status.st_mode)) damaged("expected a regular file");
        const std::int64_t size = status.st_size;
        constexpr std::int64_t prefix = 8;
        if (size < prefix)
            damaged("it has " + std::to_string(size) + " bytes, fewer than any safetensors file");
        std::uint64_t stated = 0;
        read_bytes(0, prefix, &stated);
        if (stated > static_cast<std::uint64_t>(longest_header))
            damaged("its header would have " + std::to_string(stated) + " bytes, at most " +
                    std::to_string(longest_header) + " are accepted: is it a safetensors file?");
        data_begin_ = prefix + static_cast<std::int64_t>(stated);
        if (data_begin_ > size)
            damaged("cut off: the header ends at byte " + std::to_string(data_begin_) + ", the file at " +
                    std::to_string(size));
        std::string header(stated, '\0');
        read_bytes(prefix, data_begin_ - prefix, header.data());
        parse(header, size - data_begin_);
    } catch (...) {
        close(file_);
        throw;
    }
}

SafetensorsFile::~SafetensorsFile() {
    close(file_);
}

void SafetensorsFile::damaged(const std::string& what) const {
    throw data_error(path_ + ": " + what);
}

void SafetensorsFile::parse(const std::string& header, std::int64_t data_bytes) {
    RepeatedNames names;
    const Json json = header.starts_with('{') ? Json::parse(header, std::ref(names), false) : Json();
    if (!json.is_object()) damaged("damaged: the header is no JSON object");
    if (!names.found().empty()) damaged("damaged: the header has \"" + names.found() + "\" twice");
    for (const auto& [name, value] : json.items()) {
        if (name == "__metadata__") {
            if (!value.is_object()) damaged("damaged: __metadata__ is no object");
            for (const auto& [key, text] : value.items()) {
                if (!text.is_string()) damaged("damaged: __metadata__: " + key + " is no text");
                metadata_[key] = text;
            }
            continue;
        }
        SafetensorsEntry entry{.name = name};
        if (const std::string wrong = read_entry(value, entry); !wrong.empty())
            damaged("tensor " + name + ": " + wrong);
        entries_.push_back(std::move(entry));
    }
    std::stable_sort(entries_.begin(), entries_.end(), [](const auto& a, const auto& b) {
        return std::pair(a.bytes.begin, a.bytes.end) < std::pair(b.bytes.begin, b.bytes.end);
    });
    std::int64_t at = 0;
    std::string before = "the header";
    for (const SafetensorsEntry& entry : entries_) {
        if (entry.bytes.begin != at)
            damaged("damaged: tensor " + entry.name + " begins at byte " + std::to_string(entry.bytes.begin) +
                    (entry.bytes.begin < at ? ", overlapping " : ", leaving a gap after ") + before +
                    ", which ends at " + std::to_string(at));
        at = entry.bytes.end;
        before = "tensor " + entry.name;
    }
    if (at != data_bytes)
        damaged((at > data_bytes ? "cut off: " : "damaged: ") + std::string("the tensors take ") +
                std::to_string(at) + " bytes, but the file has " + std::to_string(data_bytes) +
                " after its header");
}

const SafetensorsEntry* SafetensorsFile::find(const std::string& name) const {
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const SafetensorsEntry& entry) { return entry.name == name; });
    return found == entries_.end() ? nullptr : &*found;
}

void SafetensorsFile::read(const SafetensorsEntry& entry, Range elements, void* to) const {
    const auto size = static_cast<std::int64_t>(size_of(entry.dtype));
    read_bytes(data_begin_ + entry.bytes.begin + elements.begin * size, elements.size() * size, to);
}

void SafetensorsFile::read_bytes(std::int64_t from, std::int64_t count, void* to) const {
    for (std::int64_t done = 0; done < count;) {
        const auto got =
            pread(file_, static_cast<char*>(to) + done, static_cast<std::size_t>(count - done), from + done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) damaged("cannot be read: " + std::generic_category().message(errno));
        if (got == 0) damaged("cut off at byte " + std::to_string(from + done) + " while it was read");
        done += got;
    }
}

}  // namespace trireme
