// The main of trireme_tests. All ranks run the same test cases in step and agree on the result; each rank's
// output is kept apart, and a rank that is stuck ends the job with the name of its test case.
#define CATCH_CONFIG_EXTERNAL_INTERFACES  // version 2 declares listeners only upon this
#include "support/catch.hpp"
#include "support/run_catch.hpp"

#include <mpi.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <mutex>
#include <streambuf>
#include <string>
#include <thread>
#include <utility>

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// How long the other ranks may take to come to the end of a test case that has failed here: they are likely
// to wait for this rank in a collective.
constexpr Seconds patience_after_failure{10};

Seconds stall_limit() {
    const char* text = std::getenv("TRIREME_TEST_STALL_SECONDS");
    return Seconds(text != nullptr ? std::strtod(text, nullptr) : 100.0);
}

// Collects text from any thread.
class Collector : public std::streambuf {
public:
    std::string text() {
        const std::lock_guard lock(mutex_);
        return text_;
    }

protected:
    int_type overflow(int_type character) override {
        const std::lock_guard lock(mutex_);
        text_.push_back(traits_type::to_char_type(character));
        return character;
    }
    std::streamsize xsputn(const char* data, std::streamsize count) override {
        const std::lock_guard lock(mutex_);
        text_.append(data, static_cast<size_t>(count));
        return count;
    }

private:
    std::mutex mutex_;
    std::string text_;
};

// The state of this rank's run; one exists for the duration of main, and the listener, which Catch2
// constructs, finds it.
class RankRun {
public:
    RankRun() {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm_);
        MPI_Comm_rank(comm_, &rank_);
        MPI_Comm_size(comm_, &size_);
        if (rank_ != 0) {
            terminal_ = std::cout.rdbuf(&collector_);
            std::cerr.rdbuf(&collector_);
            std::clog.rdbuf(&collector_);
        }
        current = this;
        watchdog_ = std::thread([this] { watch(); });
    }

    ~RankRun() {
        stop_ = true;
        watchdog_.join();
        current = nullptr;
        if (terminal_ != nullptr) {
            std::cout.rdbuf(terminal_);
            std::cerr.rdbuf(terminal_);
            std::clog.rdbuf(terminal_);
        }
        MPI_Comm_free(&comm_);
    }

    void begin(const std::string& name) {
        const std::lock_guard lock(mutex_);
        test_case_ = name;
        began_ = Clock::now();
    }

    // Waits for all ranks, so that no message of one test case meets the next one.
    void end(bool failed) {
        int mine = failed ? 1 : 0, any = 0, done = 0;
        MPI_Request request = MPI_REQUEST_NULL;
        MPI_Iallreduce(&mine, &any, 1, MPI_INT, MPI_MAX, comm_, &request);
        const auto since = Clock::now();
        while (MPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && done == 0) {
            if (failed && Clock::now() - since > patience_after_failure) {
                die("failed, and not all of the other ranks came to the end of it");
            }
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
        const std::lock_guard lock(mutex_);
        test_case_.clear();
    }

    int agree(int value) const {
        int result = value;
        MPI_Allreduce(&value, &result, 1, MPI_INT, MPI_MAX, comm_);
        return result;
    }

    // What this rank said, if that is not on the terminal already.
    void print_collected() {
        const std::string text = collector_.text();
        if (rank_ == 0 || text.empty()) return;
        to_terminal("\n======== rank " + std::to_string(rank_) + " of " + std::to_string(size_) +
                    " ========\n" + text);
    }

    bool several() const { return size_ > 1; }

    static inline RankRun* current = nullptr;

private:
    static void to_terminal(const std::string& text) {
        for (size_t done = 0; done < text.size();) {
            const auto count = ::write(STDERR_FILENO, text.data() + done, text.size() - done);
            if (count <= 0) return;
            done += static_cast<size_t>(count);
        }
    }

    // Ends the process without MPI_Finalize, upon which the launcher ends the job. MPI_Abort may not be
    // called here: the watchdog's thread would be in MPI at the same time as the stuck one.
    [[noreturn]] void die(const std::string& why) {
        print_collected();
        to_terminal("rank " + std::to_string(rank_) + ": test case \"" + test_case_ + "\" " + why + "\n");
        std::_Exit(124);
    }

    void watch() {
        const auto limit = stall_limit();
        while (!stop_) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            const std::lock_guard lock(mutex_);
            if (!test_case_.empty() && Clock::now() - began_ > limit) {
                die("is stuck: it has run for " + std::to_string(static_cast<int>(limit.count())) + " s");
            }
        }
    }

    MPI_Comm comm_ = MPI_COMM_NULL;  // apart from what the tests send
    int rank_ = 0, size_ = 1;
    Collector collector_;
    std::streambuf* terminal_ = nullptr;
    std::mutex mutex_;
    std::string test_case_;  // empty between test cases
    Clock::time_point began_;
    std::atomic<bool> stop_ = false;
    std::thread watchdog_;
};

#if TRIREME_CATCH_VERSION == 3
using ListenerBase = Catch::EventListenerBase;
#else
using ListenerBase = Catch::TestEventListenerBase;
#endif

class Listener : public ListenerBase {
public:
    using ListenerBase::ListenerBase;

    using AssertionEnded = decltype(std::declval<ListenerBase&>().assertionEnded(
        std::declval<const Catch::AssertionStats&>()));  // bool in version 2, void in 3

    void testCaseStarting(const Catch::TestCaseInfo& info) override { RankRun::current->begin(info.name); }

    AssertionEnded assertionEnded(const Catch::AssertionStats& stats) override {
        crashed_ = crashed_ || stats.assertionResult.getResultType() == Catch::ResultWas::FatalErrorCondition;
        return AssertionEnded();
    }

    // After a fatal signal Catch2 closes its reports from within the handler, and then dies of the signal.
    void testCaseEnded(const Catch::TestCaseStats& stats) override {
        if (crashed_) return RankRun::current->print_collected();
        RankRun::current->end(stats.totals.assertions.failed > 0);
    }

private:
    bool crashed_ = false;
};

CATCH_REGISTER_LISTENER(Listener)

int run(int argc, char** argv) {
    RankRun ranks;
    const int status = trireme::testing::run_catch(argc, argv, !ranks.several());
    if (status != 0) ranks.print_collected();
    return ranks.agree(status);
}

}  // namespace

int main(int argc, char** argv) {
    int provided = MPI_THREAD_SINGLE;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (provided < MPI_THREAD_MULTIPLE) std::cerr << "this MPI has no MPI_THREAD_SERIALIZED\n";
    const int status = run(argc, argv);
    MPI_Finalize();
    return status;
}
