// Which GPU a process takes.
#include "trireme/tensor/device.hpp"
#include "support/catch.hpp"

using namespace trireme;
using namespace trireme::testing;

TEST_CASE("GPUs are numbered over those that the process may use, and known by their UUIDs", "[devices]") {
    const auto first = make_device("cuda"), second = make_device("cuda", 1);
    CHECK(first->identity().starts_with("GPU-"));
    CHECK(first->identity().find("(emulated device)") != std::string::npos);
    CHECK(first->identity() != second->identity());
    CHECK(make_device("cuda", 4)->identity() == first->identity());  // there are four
}

TEST_CASE("memory of one GPU is not another's, nor the host's", "[devices]") {
    const auto first = make_device("cuda"), second = make_device("cuda", 1);
    const Buffer here(*first, 64), there(*second, 64);
    const auto pinned = first->staging();
    const Buffer host(*pinned, 64);
    CHECK(first->holds(here.data()));
    CHECK_FALSE(first->holds(there.data()));
    CHECK_FALSE(first->holds(host.data()));
    CHECK_FALSE(first->holds(&here));
    CHECK_FALSE(first->holds(nullptr));
}

TEST_CASE("streams wait for each other by events", "[devices]") {
    const auto device = make_device("cuda");
    const Buffer buffer(*device, sizeof(int));
    const auto pinned = device->staging();
    const Buffer host(*pinned, sizeof(int));
    *host.as<int>() = 7;
    const auto begin = device->make_event(), end = device->make_event();
    CHECK(begin->reached());  // nothing to wait for yet
    {
        const OnStream beside(*device, Stream::communication, *begin);
        device->upload(buffer.data(), host.data(), sizeof(int));
        end->record();
    }
    end->follow();
    int found = 0;
    device->copy_to_host(&found, buffer.data(), sizeof found);
    CHECK(found == 7);
    CHECK(end->reached());
}
