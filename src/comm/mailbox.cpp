#include "comm/mailbox.hpp"

#include <algorithm>
#include <cstring>
#include <string>

#include "trireme/base/error.hpp"

namespace trireme {

int Mailbox::post(View content, int from, int to, int tag) {
    std::size_t number = 0;
    {
        const std::lock_guard lock(mutex_);
        while (number < letters_.size() && letters_[number].state != State::free) ++number;
        if (number == letters_.size()) letters_.emplace_back();
        letters_[number] = {State::posted, from, to, tag, posted_++, content};
    }
    changed_[static_cast<std::size_t>(to)].notify_all();
    return static_cast<int>(number);
}

void Mailbox::wait(int number, int from) {
    std::unique_lock lock(mutex_);
    const auto at = static_cast<std::size_t>(number);
    changed_[static_cast<std::size_t>(from)].wait(lock,
                                                  [&] { return letters_[at].state == State::received; });
    letters_[at].state = State::free;
}

Mailbox::Letter* Mailbox::earliest(int from, int to, int tag) {
    Letter* found = nullptr;
    for (Letter& letter : letters_)
        if (letter.state == State::posted && letter.from == from && letter.to == to && letter.tag == tag &&
            (found == nullptr || letter.order < found->order))
            found = &letter;
    return found;
}

void Mailbox::receive(View into, int from, int to, int tag) {
    std::unique_lock lock(mutex_);
    changed_[static_cast<std::size_t>(to)].wait(lock, [&] { return earliest(from, to, tag) != nullptr; });
    Letter* letter = earliest(from, to, tag);
    const View content = letter->content;
    if (content.bytes() > into.bytes())
        throw failure("a message of " + std::to_string(content.bytes()) + " bytes was sent where " +
                      std::to_string(into.bytes()) + " were expected");
    letter->state = State::on_its_way;
    const auto number = letter - letters_.data();  // a post may move the letters meanwhile
    lock.unlock();
    if (content.bytes() > 0) std::memcpy(into.data, content.data, content.bytes());
    lock.lock();
    letters_[static_cast<std::size_t>(number)].state = State::received;
    lock.unlock();
    changed_[static_cast<std::size_t>(from)].notify_all();
}

}  // namespace trireme
