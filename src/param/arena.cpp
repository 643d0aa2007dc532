#include "trireme/param/arena.hpp"

#include <algorithm>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

std::int64_t size_of_all(const std::vector<Range>& pieces) {
    std::int64_t size = 0;
    for (const Range piece : pieces) size += piece.size();
    return size;
}

ArenaPieces everything(const ParameterTable& table) {
    const std::vector<Range> all = {{0, table.arena_size()}};
    return {all, all, all, all};
}

}  // namespace

Column::Column(Device& device, const std::vector<Range>& pieces, std::string name, DType dtype)
    : name_(std::move(name)),
      size_(size_of_all(pieces)),
      dtype_(dtype),
      buffer_(device, static_cast<std::size_t>(size_) * size_of(dtype)) {
    char* data = buffer_.as<char>();
    for (const Range piece : pieces) {
        pieces_.push_back({piece, data});
        data += static_cast<std::size_t>(piece.size()) * size_of(dtype);
    }
}

Column::Column(std::vector<Piece> pieces, std::string name, DType dtype)
    : name_(std::move(name)), pieces_(std::move(pieces)), dtype_(dtype) {}

std::vector<Column::Piece>::const_iterator Column::piece_after(std::int64_t element) const {
    return std::partition_point(pieces_.begin(), pieces_.end(),
                                [&](const Piece& piece) { return piece.range.end <= element; });
}

void* Column::at(Range r) const {
    if (r.empty()) return buffer_.data();
    const auto piece = piece_after(r.begin);
    if (piece == pieces_.end() || r.begin < piece->range.begin || r.end > piece->range.end)
        throw failure("column " + name_ + ": elements " + std::to_string(r.begin) + " to " +
                      std::to_string(r.end) + " of the arena are not held by this rank");
    return static_cast<char*>(piece->data) +
           static_cast<std::size_t>(r.begin - piece->range.begin) * size_of(dtype_);
}

Range Column::held(Range place) const {
    const auto piece = piece_after(place.begin);
    if (piece == pieces_.end()) return {};
    const Range part = intersect(piece->range, place);
    return part.empty() ? Range{} : part;
}

Arena::Arena(Device& on, const ParameterTable& table, const ArenaOptions& options)
    : Arena(on, options.pieces ? *options.pieces : everything(table), options) {}

Arena::Arena(Device& on, const ArenaPieces& pieces, const ArenaOptions& options)
    : device(on),
      weights(device, pieces.weights, "weights"),
      gradients(device, pieces.gradients, "gradients") {
    states.reserve(options.state_names.size());
    for (const std::string& name : options.state_names) states.emplace_back(device, pieces.states, name);
    if (options.compute != DType::f32) low.emplace(device, pieces.weights, "low", options.compute);
    if (options.average) average.emplace(device, pieces.updated, "average");
}

}  // namespace trireme
