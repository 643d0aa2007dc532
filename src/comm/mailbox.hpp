// Messages between the threads of one process. Nothing is kept: the receiver copies from the sender's buffer,
// which has to stay as it is until then.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <vector>

#include "trireme/tensor/view.hpp"

namespace trireme {

class Mailbox {
public:
    /// For threads 0 ... threads - 1.
    explicit Mailbox(int threads) : changed_(static_cast<std::size_t>(threads)) { letters_.reserve(64); }

    /// Returns at once; the number is for wait().
    int post(View content, int from, int to, int tag);
    /// Until the letter has been received; its number is then given out again.
    void wait(int number, int from);
    /// Waits for the earliest letter of this pair and tag. @throws Error when it does not fit into `into`.
    void receive(View into, int from, int to, int tag);

private:
    enum class State { free, posted, on_its_way, received };
    struct Letter {
        State state = State::free;
        int from = 0, to = 0, tag = 0;
        unsigned long order = 0;
        View content;
    };
    Letter* earliest(int from, int to, int tag);

    std::mutex mutex_;
    std::deque<std::condition_variable> changed_;  ///< by thread: something that it may wait for
    std::vector<Letter> letters_;                  ///< by number; places are used again
    unsigned long posted_ = 0;
};

}  // namespace trireme
