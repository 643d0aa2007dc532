#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <compare>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <optional>
#include <random>
#include <system_error>

#include "checkpoint/format.hpp"
#include "trireme/base/clock.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/base/recorder.hpp"
#include "trireme/comm/agree.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using checkpoint::Item;

[[noreturn]] void fail_system(const std::string& what, int code = errno) {
    throw failure(what + ": " + std::generic_category().message(code));
}

/// A file or folder opened for a system call of its own; HDF5 keeps its descriptors to itself.
class Descriptor {
public:
    Descriptor(const std::string& path, int flags)
        : path_(path), fd_(::open(path.c_str(), flags | O_CLOEXEC, 0666)) {
        if (fd_ < 0) fail_system((flags & O_CREAT) != 0 ? "cannot create " + path : "cannot open " + path);
    }
    ~Descriptor() { ::close(fd_); }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;

    void sync() const {
        if (::fsync(fd_) != 0) fail_system("cannot sync " + path_);
    }
    /// Takes the disk's blocks for so many bytes, so that a full disk or a limit is noticed here. Where the
    /// file system cannot do that, writing will tell. mode: 0 makes the file at least that long,
    /// FALLOC_FL_KEEP_SIZE does not.
    void reserve(std::int64_t bytes, int mode) const {
        if (::fallocate(fd_, mode, 0, bytes) != 0 && errno != EOPNOTSUPP && errno != ENOSYS)
            fail_system("cannot reserve " + bytes_text(static_cast<double>(bytes)) + " for " + path_);
    }

private:
    std::string path_;
    int fd_;
};

/// HDF5 is not held up longer by a checkpoint than for so much: training may be reading its data meanwhile.
constexpr std::int64_t bytes_at_once = 16 << 20;

std::string temporary_name(const std::string& path) {
    std::array<char, 16> suffix{};
    std::snprintf(suffix.data(), suffix.size(), ".tmp-%08x", static_cast<unsigned>(std::random_device{}()));
    return path + suffix.data();
}

std::string folder_of(const std::string& path) {
    const fs::path folder = fs::path(path).parent_path();
    return folder.empty() ? "." : folder.string();
}

/// An item and who writes it.
struct Piece {
    Item item;
    bool shared = false;  ///< written by all ranks together; otherwise by rank 0 alone
    Range mine;           ///< the elements of the local part that this rank writes of a shared one
};

/// What a rank holds of an item: a slice along an axis, and an interval of the slice's elements. Nothing of
/// what another rank counts: copies may be cut into other intervals there.
struct Holding {
    std::int64_t axis = 0, begin = 0, end = 0, from = 0, to = 0;
    friend auto operator<=>(const Holding&, const Holding&) = default;
};

Holding holding_of(const Item& item) {
    const Shape& shape = item.parameter->shape;
    if ((item.local.empty() && shape.count() > 0) || !item.parameter->counted) return {};
    const Slice slice = item.parameter->slice.value_or(Slice{0, {0, shape.rank() > 0 ? shape[0] : 1}});
    return {slice.axis, slice.range.begin, slice.range.end, item.local.begin, item.local.end};
}

/// What every rank holds of every item: [rank * items + item]. Collective.
std::vector<Holding> gather_holdings(Communicator& comm, const std::vector<Item>& items) {
    std::vector<Holding> mine, all(items.size() * static_cast<std::size_t>(comm.size()));
    for (const Item& item : items) mine.push_back(holding_of(item));
    static_assert(sizeof(Holding) == 5 * sizeof(std::int64_t));
    const auto view = [](std::vector<Holding>& list) {
        return view_of(reinterpret_cast<std::int64_t*>(list.data()),
                       Shape{static_cast<std::int64_t>(5 * list.size())});
    };
    comm.all_gather(view(mine), view(all));
    return all;
}

/// @throws Error when the parts that the ranks hold leave out or overlap elements of the whole.
void check_cover(const Parameter& parameter, std::vector<Holding> parts) {
    std::sort(parts.begin(), parts.end());
    parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
    const Shape& shape = parameter.shape;
    std::int64_t along = 0;  // how far the slices reach along their axis
    bool whole = true;
    for (std::size_t i = 0; i < parts.size() && whole;) {
        const Holding& slice = parts[i];
        if (slice.begin == slice.end) {
            ++i;
            continue;
        }
        Shape extents = shape;
        if (shape.rank() > 0) extents[static_cast<int>(slice.axis)] = slice.end - slice.begin;
        std::int64_t covered = 0;
        for (; i < parts.size() && parts[i].axis == slice.axis && parts[i].begin == slice.begin; ++i) {
            whole = whole && parts[i].end == slice.end && parts[i].from == covered;
            covered = parts[i].to;
        }
        whole = whole && slice.begin == along && covered == extents.count();
        along = slice.end;
    }
    const std::int64_t axis = parts.back().axis;
    const std::int64_t extent = shape.rank() > 0 ? shape[static_cast<int>(axis)] : 1;
    if (!whole || (shape.count() > 0 && along != extent))
        throw Error(Status::failed,
                    "the ranks do not hold parameter " + parameter.name + " as parts of one whole of " +
                        std::to_string(shape.count()) + " elements",
                    Scope::all_ranks);
}

/// Ranks that hold the same of an item divide it evenly among them. Collective.
std::vector<Piece> divide(Communicator& comm, const ParameterTable& table, const Arena& arena,
                          std::int64_t parallel_from_elements) {
    std::vector<Item> items = checkpoint::items_of(table, arena);
    const std::vector<Holding> holdings = gather_holdings(comm, items);
    const auto ranks = static_cast<std::size_t>(comm.size());
    std::vector<Piece> pieces;
    for (std::size_t i = 0; i < items.size(); ++i) {
        std::vector<Holding> held(ranks);
        for (std::size_t r = 0; r < ranks; ++r) held[r] = holdings[r * items.size() + i];
        check_cover(*items[i].parameter, held);
        const auto here = held.begin() + comm.rank();
        const Range mine = part_of({here->from, here->to}, std::count(held.begin(), held.end(), *here),
                                   std::count(held.begin(), here, *here));
        const std::int64_t count = items[i].parameter->shape.count();
        const bool alone = held[0].to - held[0].from == count && count < parallel_from_elements;
        pieces.push_back({std::move(items[i]), ranks > 1 && !alone, mine});
    }
    return pieces;
}

/// At least what the file will take.
std::int64_t bytes_of(const CheckpointMeta& meta, const std::vector<Piece>& pieces) {
    constexpr std::int64_t fixed = 64 << 10, header = 4 << 10;  // measured: 11 KiB, and 0.8 KiB a data set
    std::int64_t bytes = fixed + static_cast<std::int64_t>(meta.config.size());
    for (const Piece& piece : pieces)
        bytes += header + piece.item.parameter->shape.count() * static_cast<std::int64_t>(sizeof(float));
    return bytes;
}

/// The file's whole structure, the meta data, and the pieces that rank 0 writes alone.
void write_alone(const std::string& path, const Arena& arena, const CheckpointMeta& meta,
                 const std::vector<Piece>& pieces) {
    // The space is there before HDF5 writes anything, and again after it has emptied the file: HDF5 1.10 does
    // not get over a failed write of its own structures and takes the process down when it ends.
    const std::int64_t bytes = bytes_of(meta, pieces);
    const Descriptor space(path, O_WRONLY | O_CREAT | O_EXCL);
    space.reserve(bytes, 0);
    io::File file(path, io::Access::create);
    space.reserve(bytes, FALLOC_FL_KEEP_SIZE);
    file.limit_transfers(bytes_at_once);

    checkpoint::write_meta(file, meta, arena);
    for (const Piece& piece : pieces) {
        const Shape& shape = piece.item.parameter->shape;
        io::Dataset dataset = file.create(piece.item.dataset, DType::f32, shape);
        const Span span(Activity::checkpoint, "writing of a parameter");
        if (!piece.shared) checkpoint::write_part(dataset, piece.item, piece.item.local, arena.device);
    }
    file.close();
    space.reserve(static_cast<std::int64_t>(fs::file_size(path)), 0);
}

/// Runs steps that may fail here but not on other ranks, and keeps the first error until all ranks agree on
/// it.
class Attempts {
public:
    template <class Step>
    void operator()(Step step) {
        try {
            step();
        } catch (...) {
            if (!error_) error_ = std::current_exception();
        }
    }
    void agree(Communicator& comm) const {
        agreed_by_all(comm, [&] {
            if (error_) std::rethrow_exception(error_);
        });
    }

private:
    std::exception_ptr error_;
};

/// The shared pieces. Opening and closing are collective, so a rank whose write failed still takes
/// part in all that follow, and the ranks agree at the end.
void write_together(Communicator& comm, const std::string& path, const std::vector<Piece>& pieces,
                    Device& device) {
    Attempts attempt;
    std::optional<io::File> file;
    attempt([&] { file.emplace(path, io::Access::append, comm); });
    attempt.agree(comm);
    file->limit_transfers(bytes_at_once);

    std::vector<io::Dataset> datasets;
    attempt([&] {
        for (const Piece& piece : pieces)
            if (piece.shared) datasets.push_back(file->open(piece.item.dataset));
    });
    attempt.agree(comm);

    auto dataset = datasets.begin();
    for (const Piece& piece : pieces) {
        if (!piece.shared) continue;
        const Span span(Activity::checkpoint, "writing of a parameter");
        attempt([&] { checkpoint::write_part(*dataset, piece.item, piece.mine, device); });
        ++dataset;
    }
    datasets.clear();
    attempt([&] { file->close(); });
    // Each machine's part reaches the disk from there; HDF5's own flush would hold up readers for as long.
    attempt([&] { Descriptor(path, O_RDONLY).sync(); });
    attempt.agree(comm);
}

/// Checks the closed file, makes it durable and gives it its name. Returns its size.
double publish(const std::string& temporary, const std::string& path, const std::vector<Piece>& pieces) {
    {
        const io::File file(temporary, io::Access::read);
        for (const Piece& piece : pieces) {
            const Shape found = file.open(piece.item.dataset).info().shape;
            if (!(found == piece.item.parameter->shape))
                throw failure(temporary + ":" + piece.item.dataset + " has shape " + found.text() +
                              " after writing " + piece.item.parameter->shape.text());
        }
    }
    const auto bytes = static_cast<double>(fs::file_size(temporary));
    Descriptor(temporary, O_RDONLY).sync();
    if (std::rename(temporary.c_str(), path.c_str()) != 0)
        fail_system("cannot rename " + temporary + " to " + path);
    Descriptor(folder_of(path), O_RDONLY | O_DIRECTORY).sync();
    return bytes;
}

void create_folder(const std::string& folder) {
    std::error_code code;
    fs::create_directories(folder, code);
    if (code) throw failure("cannot create the folder " + folder + ": " + code.message());
}

}  // namespace

SavedCheckpoint save_checkpoint(Communicator& comm, const std::string& path, const ParameterTable& table,
                                const Arena& arena, const CheckpointMeta& meta,
                                std::int64_t parallel_from_elements) {
    const Stopwatch watch;
    const std::string temporary = broadcast_text(comm, comm.rank() == 0 ? temporary_name(path) : "");
    double bytes = 0;
    try {
        const std::vector<Piece> pieces = divide(comm, table, arena, parallel_from_elements);
        agreed_by_one(comm, [&] {
            create_folder(folder_of(path));
            write_alone(temporary, arena, meta, pieces);
        });
        if (std::any_of(pieces.begin(), pieces.end(), [](const Piece& piece) { return piece.shared; }))
            write_together(comm, temporary, pieces, arena.device);
        agreed_by_one(comm, [&] { bytes = publish(temporary, path, pieces); });
    } catch (const Error& error) {
        std::error_code ignored;
        if (comm.rank() == 0) fs::remove(temporary, ignored);
        throw Error(Status::failed, "checkpoint " + path + " could not be saved: " + error.what(),
                    error.scope());
    }
    const double seconds = watch.seconds();
    return {path, meta.position.attempts(), broadcast_value(comm, bytes), seconds, seconds};
}

}  // namespace trireme
