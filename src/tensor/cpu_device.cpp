#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "tensor/backends.hpp"
#include "tensor/host_memory.hpp"
#include "trireme/base/error.hpp"
#include "trireme/base/parse.hpp"
#include "trireme/base/range.hpp"

namespace trireme {
namespace {

constexpr std::size_t cache_line = 64;
constexpr std::size_t huge_page = std::size_t{2} << 20;

class CpuDevice final : public HostMemory {
public:
    std::string name() const override { return "cpu"; }

    void* allocate(std::size_t bytes) override {
        const bool large = bytes >= 2 * huge_page;
        const std::size_t alignment = large ? huge_page : cache_line;
        const std::size_t rounded = (bytes + alignment - 1) / alignment * alignment;
        void* data = std::aligned_alloc(alignment, rounded);
        if (data == nullptr)
            throw failure("out of memory: " + bytes_text(static_cast<double>(bytes)) +
                          " could not be allocated");
        // Large arenas and workspaces are walked from end to end: fewer, larger pages save translation
        // misses.
        if (large) madvise(data, rounded, MADV_HUGEPAGE);
        std::memset(data, 0, rounded);
        return data;
    }
    void release(void* data, std::size_t) noexcept override { std::free(data); }
    std::unique_ptr<Device> staging() override { return make_cpu_device(); }
};

}  // namespace

std::unique_ptr<Device> make_cpu_device() {
    return std::make_unique<CpuDevice>();
}

}  // namespace trireme
