#pragma once
// Device tensors for tests of operations: reproducible values in, values out, and guard bytes on both sides
// that no verb may touch.

#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "support/catch.hpp"
#include "trireme/base/philox.hpp"
#include "trireme/ops/ops.hpp"
#include "trireme/tensor/device.hpp"
#include "trireme/tensor/view.hpp"

namespace trireme::testing {

using Values = std::vector<double>;

/// n reals in [low, high), each exactly a float, so that oracle and verb see the same numbers.
inline Values random_values(std::int64_t n, std::uint64_t seed, double low = -1, double high = 1) {
    const RandomStream stream(seed, Purpose::augment, 7);
    Values values(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < values.size(); ++i)
        values[i] =
            static_cast<float>(low + (high - low) * static_cast<double>(unit_interval(stream.word(i))));
    return values;
}

/// n integers in [0, bound).
inline std::vector<std::int32_t> random_labels(std::int64_t n, std::int32_t bound, std::uint64_t seed) {
    const RandomStream stream(seed, Purpose::augment, 8);
    std::vector<std::int32_t> labels(static_cast<std::size_t>(n));
    for (std::size_t i = 0; i < labels.size(); ++i)
        labels[i] = static_cast<std::int32_t>(stream.word(i) % static_cast<std::uint32_t>(bound));
    return labels;
}

/// A tensor of T on a device between two guards.
template <class T>
class Guarded {
public:
    Guarded(Device& device, Shape shape, const std::vector<T>& values) : device_(&device), shape_(shape) {
        std::vector<unsigned char> image(bytes() + 2 * guard, pattern);
        if (bytes() > 0) std::memcpy(image.data() + guard, values.data(), bytes());
        buffer_ = Buffer(device, image.size());
        device.copy_from_host(buffer_.data(), image.data(), image.size());
    }
    /// Checks the guards: whatever test uses the tensor, a stray write fails it.
    ~Guarded() {
        if (buffer_.data() == nullptr) return;
        const std::vector<unsigned char> image = fetch();
        bool intact = true;
        for (std::size_t i = 0; i < guard; ++i)
            intact = intact && image[i] == pattern && image[guard + bytes() + i] == pattern;
        CHECK(intact);
    }
    Guarded(Guarded&&) noexcept = default;
    Guarded& operator=(Guarded&&) = delete;

    View view() const { return {buffer_.as<unsigned char>() + guard, dtype_of<T>, shape_}; }
    operator View() const { return view(); }

    std::vector<T> values() const {
        const std::vector<unsigned char> image = fetch();
        std::vector<T> result(static_cast<std::size_t>(shape_.count()));
        if (bytes() > 0) std::memcpy(result.data(), image.data() + guard, bytes());
        return result;
    }

private:
    static constexpr std::size_t guard = 64;
    static constexpr unsigned char pattern = 0xA5;

    std::size_t bytes() const { return static_cast<std::size_t>(shape_.count()) * sizeof(T); }
    std::vector<unsigned char> fetch() const {
        std::vector<unsigned char> image(bytes() + 2 * guard);
        device_->synchronize();
        device_->copy_to_host(image.data(), buffer_.data(), image.size());
        return image;
    }

    Device* device_;
    Shape shape_;
    Buffer buffer_;
};

using Tensor = Guarded<float>;
using Indices = Guarded<std::int32_t>;

/// A device with its verbs.
struct Machine {
    explicit Machine(const std::string& kind, int threads = 1)
        : device(make_device(kind)), ops(make_ops(*device, threads)) {}

    Tensor tensor(Shape shape, const Values& values) const {
        return Tensor(*device, shape, std::vector<float>(values.begin(), values.end()));
    }
    /// An output: holds a value that no verb produces, so that a missing write shows.
    Tensor output(Shape shape) const {
        return Tensor(*device, shape, std::vector<float>(static_cast<std::size_t>(shape.count()), 12345.0F));
    }
    Indices indices(Shape shape, const std::vector<std::int32_t>& values) const {
        return {*device, shape, values};
    }

    std::unique_ptr<Device> device;
    std::unique_ptr<Ops> ops;
};

/// One double in device memory.
class Cell {
public:
    explicit Cell(Device& device, double value = 0) : device_(&device), buffer_(device, sizeof value) {
        device.copy_from_host(buffer_.data(), &value, sizeof value);
    }
    double* get() const { return buffer_.as<double>(); }
    double value() const {
        double result = 0;
        device_->synchronize();
        device_->copy_to_host(&result, buffer_.data(), sizeof result);
        return result;
    }

private:
    Device* device_;
    Buffer buffer_;
};

/// |got - want| <= relative·|want| + absolute everywhere; reports the worst element.
template <class T>
void require_close(const std::vector<T>& got, const Values& want, double relative, double absolute) {
    REQUIRE(got.size() == want.size());
    std::size_t worst = 0;
    double excess = 0;
    for (std::size_t i = 0; i < got.size(); ++i) {
        const double error = std::fabs(static_cast<double>(got[i]) - want[i]);
        const double ratio = error / (relative * std::fabs(want[i]) + absolute);
        if (ratio > excess || std::isnan(ratio)) {
            excess = std::isnan(ratio) ? INFINITY : ratio;
            worst = i;
        }
    }
    if (got.empty()) return;
    INFO("worst element " << worst << " of " << got.size() << ": got " << got[worst] << ", want "
                          << want[worst]);
    REQUIRE(excess <= 1);
}

inline void require_close(const Tensor& got, const Values& want, double relative = 2e-5,
                          double absolute = 2e-5) {
    require_close(got.values(), want, relative, absolute);
}

}  // namespace trireme::testing
