#include "trireme/param/arena.hpp"

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

std::int64_t size_of_all(const std::vector<Range>& pieces) {
    std::int64_t size = 0;
    for (const Range piece : pieces) size += piece.size();
    return size;
}

}  // namespace

Column::Column(Device& device, std::vector<Range> pieces, std::string name, DType dtype)
    : name_(std::move(name)),
      pieces_(std::move(pieces)),
      size_(size_of_all(pieces_)),
      dtype_(dtype),
      buffer_(device, static_cast<std::size_t>(size_) * size_of(dtype)) {}

void* Column::at(Range r) const {
    std::int64_t offset = 0;
    for (const Range piece : pieces_) {
        if (r.begin >= piece.begin && r.end <= piece.end)
            return buffer_.as<char>() +
                   static_cast<std::size_t>(offset + r.begin - piece.begin) * size_of(dtype_);
        offset += piece.size();
    }
    if (r.empty()) return buffer_.data();
    throw failure("column " + name_ + ": elements " + std::to_string(r.begin) + " to " +
                  std::to_string(r.end) + " of the arena are not held by this rank");
}

Range Column::held(Range place) const {
    for (const Range piece : pieces_)
        if (const Range part = intersect(piece, place); !part.empty()) return part;
    return {};
}

Arena::Arena(Device& device, const ParameterTable& table, const ArenaOptions& options)
    : weights(device, table, "weights"), gradients(device, table, "gradients") {
    states.reserve(options.state_names.size());
    for (const std::string& name : options.state_names) states.emplace_back(device, table, name);
    if (options.compute != DType::f32) low.emplace(device, table, "low", options.compute);
    if (options.average) average.emplace(device, table, "average");
}

}  // namespace trireme
