#include "trireme/comm/agree.hpp"

#include <optional>

#include "trireme/base/error.hpp"

namespace trireme {
namespace {

std::optional<Error> error_of(const std::function<void()>& action) {
    try {
        action();
    } catch (const Error& error) {
        return error;
    } catch (const std::exception& error) {
        return failure(error.what());
    }
    return std::nullopt;
}

/// Every rank gets `speaker`'s error and throws it.
[[noreturn]] void throw_alike(Communicator& comm, int speaker, const std::optional<Error>& mine,
                              const std::string& prefix) {
    const bool speaking = comm.rank() == speaker;
    const int status = broadcast_value(comm, speaking ? static_cast<int>(mine->status()) : 0, speaker);
    std::string text = speaking ? prefix + mine->what() : "";
    const auto length = broadcast_value(comm, static_cast<std::int64_t>(text.size()), speaker);
    text.resize(static_cast<std::size_t>(length));
    comm.broadcast(view_of(reinterpret_cast<std::uint8_t*>(text.data()), Shape{length}), speaker);
    throw Error(static_cast<Status>(status), text, Scope::all_ranks);
}

}  // namespace

void agreed_by_one(Communicator& comm, const std::function<void()>& action) {
    std::optional<Error> error;
    if (comm.rank() == 0) error = error_of(action);
    if (broadcast_value(comm, error.has_value() ? 1 : 0) != 0) throw_alike(comm, 0, error, "");
}

void agreed_by_all(Communicator& comm, const std::function<void()>& action) {
    const std::optional<Error> error = error_of(action);
    const int first = all_reduce_value(comm, error ? comm.rank() : comm.size(), Reduce::min);
    if (first == comm.size()) return;
    const int failed = all_reduce_value(comm, error ? 1 : 0);
    throw_alike(comm, first, error, failed == comm.size() ? "" : "rank " + std::to_string(first) + ": ");
}

std::string broadcast_text(Communicator& comm, std::string text) {
    const auto length = broadcast_value(comm, static_cast<std::int64_t>(text.size()));
    text.resize(static_cast<std::size_t>(length));
    comm.broadcast(view_of(reinterpret_cast<std::uint8_t*>(text.data()), Shape{length}), 0);
    return text;
}

std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine) {
    const auto ranks = static_cast<std::size_t>(comm.size());
    std::vector<std::int64_t> lengths(ranks);
    auto length = static_cast<std::int64_t>(mine.size());
    comm.all_gather(view_of(&length, Shape{1}), view_of(lengths.data(), Shape{comm.size()}));

    std::vector<Range> parts(ranks);
    std::int64_t total = 0;
    for (std::size_t r = 0; r < ranks; ++r) {
        parts[r] = {total, total + lengths[r]};
        total += lengths[r];
    }
    std::string all(static_cast<std::size_t>(total), '\0');
    mine.copy(all.data() + parts[static_cast<std::size_t>(comm.rank())].begin, mine.size());
    comm.all_gather(view_of(reinterpret_cast<std::uint8_t*>(all.data()), Shape{total}), parts);

    std::vector<std::string> texts;
    for (const Range part : parts)
        texts.push_back(
            all.substr(static_cast<std::size_t>(part.begin), static_cast<std::size_t>(part.size())));
    return texts;
}

}  // namespace trireme
