#include "trireme/comm/watchdog.hpp"

#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <list>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "comm/mpi_communicator.hpp"
#include "trireme/base/clock.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"

namespace trireme {
namespace {

constexpr int question_tag = 1, answer_tag = 2;
/// What a process says of itself, and to which question.
struct Answer {
    std::int64_t question = 0;
    double idle = 0;
    std::string place;
};

std::vector<char> packed(const Answer& answer) {
    std::vector<char> bytes(sizeof answer.question + sizeof answer.idle + answer.place.size());
    std::memcpy(bytes.data(), &answer.question, sizeof answer.question);
    std::memcpy(bytes.data() + sizeof answer.question, &answer.idle, sizeof answer.idle);
    std::copy(answer.place.begin(), answer.place.end(),
              bytes.end() - static_cast<std::ptrdiff_t>(answer.place.size()));
    return bytes;
}

Answer unpacked(const std::vector<char>& bytes) {
    Answer answer;
    constexpr std::size_t head = sizeof answer.question + sizeof answer.idle;
    if (bytes.size() < head) return answer;
    std::memcpy(&answer.question, bytes.data(), sizeof answer.question);
    std::memcpy(&answer.idle, bytes.data() + sizeof answer.question, sizeof answer.idle);
    answer.place.assign(bytes.data() + head, bytes.data() + bytes.size());
    return answer;
}

void nap(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

}  // namespace

class Watchdog::Impl {
public:
    Impl(Session& session, Options options) : options_(std::move(options)) {
        if (session.size() > 1) {
            const auto& world = dynamic_cast<const MpiCommunicator&>(session.world());
            MPI_Comm_dup(world.handle(), &comm_);
            MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
        }
        rank_ = session.rank();
        size_ = session.size();
        tick_ = std::clamp(options_.timeout / 10, 0.05, 1.0);
        patience_ = std::clamp(options_.timeout / 2, 1.0, 5.0);
        thread_ = std::thread([this] { watch(); });
    }
    ~Impl() {
        {
            const std::lock_guard lock(mutex_);
            closing_ = true;
        }
        wake_.notify_all();
        thread_.join();
        for (Message& message : sent_) MPI_Request_free(&message.request);
        if (comm_ != MPI_COMM_NULL) MPI_Comm_free(&comm_);
    }

private:
    struct Message {
        std::vector<char> bytes;
        MPI_Request request = MPI_REQUEST_NULL;
    };

    void watch() {
        double looked = now_seconds();
        counted_from_ = looked;
        std::unique_lock lock(mutex_);
        while (!wake_.wait_for(lock, std::chrono::duration<double>(tick_), [this] { return closing_; })) {
            lock.unlock();
            const double now = now_seconds();
            if (now - looked > 5 * tick_ + patience_) counted_from_ = now;  // the process was stopped for a while
            looked = now;
            answer_questions();
            if (rank_ == 0 ? idle() >= options_.timeout : overdue()) look_into_it();
            lock.lock();
        }
    }
    double idle() const { return std::min(options_.idle_seconds(), now_seconds() - counted_from_); }
    /// Process 0 should have asked by now.
    bool overdue() const {
        return idle() >= options_.timeout + 3 * patience_ && now_seconds() - asked_at_ > options_.timeout;
    }

    /// Process 0 asks all others; another one only whether process 0 is there, and leaves the rest to it.
    void look_into_it() {
        std::vector<int> others;
        for (int other = rank_ == 0 ? 1 : 0; other < (rank_ == 0 ? size_ : 1); ++other)
            others.push_back(other);
        ++question_;
        for (const int other : others) send(other, question_tag, {question_, 0, {}});
        std::vector<std::optional<Answer>> answers(others.size());
        std::size_t missing = others.size();
        for (const double asked = now_seconds(); missing > 0 && now_seconds() - asked < patience_;) {
            answer_questions();
            for (int source = 0; const std::optional<Answer> answer = receive(answer_tag, source);) {
                std::optional<Answer>& slot = answers[static_cast<std::size_t>(rank_ == 0 ? source - 1 : 0)];
                if (answer->question != question_ || slot) continue;
                slot = answer;
                --missing;
            }
            nap(0.02);
        }
        const bool well =
            rank_ != 0 ? missing == 0 : std::any_of(answers.begin(), answers.end(), [&](const auto& answer) {
                return answer && answer->idle < options_.timeout / 2;
            });
        if (well || idle() < options_.timeout) {
            counted_from_ = now_seconds();
            return;
        }
        std::string text = "no progress for " + duration_text(options_.timeout) + " (run.stall_timeout)";
        // Those that stand at the same place are named together, and those that say nothing first.
        std::vector<std::pair<std::string, std::string>> places;
        const auto add = [&](int process, const std::string& place) {
            for (auto& [known, processes] : places)
                if (known == place) {
                    processes += ", " + std::to_string(process);
                    return;
                }
            places.emplace_back(place, std::to_string(process));
        };
        for (std::size_t i = 0; i < others.size(); ++i)
            if (!answers[i]) add(others[i], "no answer: stopped, or its machine is gone");
        add(rank_, options_.place());
        for (std::size_t i = 0; i < others.size(); ++i)
            if (answers[i]) add(others[i], answers[i]->place);
        for (const auto& [place, processes] : places)
            text += "\n  " + std::string(size_ > 1 ? "process " + processes + ": " : "") + place;
        options_.end(text);
    }

    void answer_questions() {
        for (int source = 0; const std::optional<Answer> question = receive(question_tag, source);) {
            if (source == 0) asked_at_ = now_seconds();
            send(source, answer_tag, {question->question, idle(), options_.place()});
        }
    }

    /// Never waits: whoever does not receive has its message lie.
    void send(int to, int tag, const Answer& content) {
        sent_.remove_if([](Message& message) {
            int done = 0;
            MPI_Test(&message.request, &done, MPI_STATUS_IGNORE);
            return done != 0;
        });
        Message& message = sent_.emplace_back();
        message.bytes = packed(content);
        MPI_Isend(message.bytes.data(), static_cast<int>(message.bytes.size()), MPI_BYTE, to, tag, comm_,
                  &message.request);
    }
    std::optional<Answer> receive(int tag, int& source) {
        if (comm_ == MPI_COMM_NULL) return std::nullopt;
        int there = 0, count = 0;
        MPI_Status status;
        if (MPI_Iprobe(MPI_ANY_SOURCE, tag, comm_, &there, &status) != MPI_SUCCESS || there == 0)
            return std::nullopt;
        MPI_Get_count(&status, MPI_BYTE, &count);
        std::vector<char> bytes(static_cast<std::size_t>(count));
        source = status.MPI_SOURCE;
        MPI_Recv(bytes.data(), count, MPI_BYTE, source, tag, comm_, MPI_STATUS_IGNORE);
        return unpacked(bytes);
    }

    Options options_;
    MPI_Comm comm_ = MPI_COMM_NULL;
    int rank_ = 0, size_ = 1;
    double tick_ = 1;
    double patience_ = 5;  ///< how long processes have for an answer: several looks of theirs
    double counted_from_ = 0, asked_at_ = 0;
    std::int64_t question_ = 0;
    bool closing_ = false;
    std::mutex mutex_;
    std::condition_variable wake_;
    std::list<Message> sent_;
    std::thread thread_;
};

Watchdog::Watchdog(Session& session, Options options) {
    if (options.timeout > 0) impl_ = std::make_unique<Impl>(session, std::move(options));
}

Watchdog::~Watchdog() = default;

}  // namespace trireme
