// The language of kernels: indices, meetings, atomics, vectors, narrow types, functions.
#include "samples/language.hpp"

#include <cmath>

#include "samples/buffers.hpp"
#include "samples/kernels.hpp"
#include "support/catch.hpp"

using namespace trireme::sample;
using trireme::testing::Approx;

TEST_CASE("threads and blocks have the indices of CUDA", "[cudaemu]") {
    const Stream s;
    const Buffer<int> out(128);
    indices(out, s);
    s.wait();
    const auto got = out.get();
    for (int t = 0; t < 64; ++t) {
        const int expected = t % 4 + 10 * (t / 4 % 4) + 100 * (t / 16);
        CHECK(got[static_cast<std::size_t>(t)] == expected);
        CHECK(got[static_cast<std::size_t>(64 + t)] == 1000 + expected);
    }
}

TEST_CASE("lanes of a warp exchange values", "[cudaemu]") {
    const Stream s;
    const Buffer<int> out(192);
    shuffles(out, s);
    s.wait();
    const auto got = out.get();
    for (std::size_t lane = 0; lane < 32; ++lane) {
        const int l = static_cast<int>(lane);
        CHECK(got[lane] == 6);
        CHECK(got[32 + lane] == 31 * 32 / 2);
        CHECK(got[64 + lane] == (l < 24 ? l + 8 : l));
        CHECK(got[96 + lane] == l * (l + 1) / 2);
        CHECK(static_cast<unsigned>(got[128 + lane]) == 0xaaaaaaaau);
        CHECK(got[160 + lane] == 8 * (l / 8 * 8) + 28);
    }
}

TEST_CASE("atomic functions lose nothing", "[cudaemu]") {
    const Stream s;
    const Buffer<float> f(std::vector<float>{0});
    const Buffer<double> d(std::vector<double>{0});
    const Buffer<int> i(std::vector<int>{0, -1, 1000});
    atomics(f, d, i, s);
    s.wait();
    CHECK(f.get()[0] == 288);
    CHECK(d.get()[0] == 288);
    CHECK(i.get() == std::vector<int>{288, 287, 0});
}

TEST_CASE("memory moves as vectors", "[cudaemu]") {
    const Stream s;
    const auto values = normals(1000);
    const Buffer<float> x(values), y(1000);
    copy_vectors(x.data(), y.data(), 1000, s);
    const Buffer<int> i(std::vector<int>(8, 7)), j(8);
    copy_vectors(i.data(), j.data(), 8, s);
    s.wait();
    CHECK(y.get() == values);
    CHECK(j.get() == std::vector<int>(8, 7));
}

TEST_CASE("narrow floating-point types convert as the toolkit's headers say", "[cudaemu]") {
    const Stream s;
    const auto x = normals(100, 1), y = normals(100, 2);
    const auto check_type = [&]<class T>(T, double tolerance) {
        const Buffer<T> dx(narrowed<T>(x)), dy(narrowed<T>(y));
        axpy(dx.data(), dy.data(), 100, 0.5f, s);
        s.wait();
        const auto got = dy.get();
        for (std::size_t i = 0; i < 100; ++i) {
            CHECK(static_cast<float>(got[i]) == Approx(0.5 * x[i] + y[i]).margin(tolerance));
        }
    };
    check_type(__nv_bfloat16(), 0.03);
    check_type(__half(), 0.004);
}

TEST_CASE("mathematical functions", "[cudaemu]") {
    const Stream s;
    const Buffer<float> out(10);
    mathematics(2.25f, out, s);
    s.wait();
    const auto got = out.get();
    const double wanted[] = {1 / 1.5, std::exp(2.25), 5.5, std::erf(2.25), std::tanh(2.25), 1, 2.25, 8, 3, 0};
    for (std::size_t i = 0; i < 10; ++i) CHECK(got[i] == Approx(wanted[i]));
}

TEST_CASE("barriers count votes", "[cudaemu]") {
    const Stream s;
    const Buffer<int> out(3);
    votes(out, s);
    s.wait();
    CHECK(out.get() == std::vector<int>{32, 1, 1});
}

TEST_CASE("dynamic shared memory is limited until the kernel asks for more", "[cudaemu]") {
    const Stream s;
    const int n = 20000;  // 80,000 bytes, more than a kernel has without asking
    std::vector<float> values(n);
    for (int i = 0; i < n; ++i) values[static_cast<std::size_t>(i)] = static_cast<float>(i);
    const Buffer<float> x(values);
    CHECK_THROWS_WITH(reverse(x, n, s), trireme::testing::contains("cudaErrorInvalidValue"));
    REQUIRE(cudaFuncSetAttribute(reverse_kernel_address(), cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 n * 4) == cudaSuccess);
    reverse(x, n, s);
    s.wait();
    CHECK(x.get()[0] == n - 1);
    CHECK(cudaFuncSetAttribute(reverse_kernel_address(), cudaFuncAttributeMaxDynamicSharedMemorySize,
                               1 << 20) == cudaErrorInvalidValue);
    cudaGetLastError();
}

TEST_CASE("kernels launch from untyped arguments", "[cudaemu]") {
    const Stream s;
    const Buffer<float> x(1);
    float *p = x, a = 2, b = 3;
    void* args[] = {&p, &a, &b};
    cudaLaunchConfig_t config{};
    config.gridDim = config.blockDim = dim3(1);
    config.stream = s;
    REQUIRE(cudaLaunchKernelExC(&config, known_kernel(), args) == cudaSuccess);
    s.wait();
    CHECK(x.get()[0] == 5);
    CHECK(cudaLaunchKernelExC(&config, &config, args) == cudaErrorInvalidDeviceFunction);
    cudaGetLastError();
}

TEMPLATE_TEST_CASE("kernels as a backend has them", "[cudaemu]", float, __nv_bfloat16, __half) {
    using T = TestType;
    const double tolerance = sizeof(T) == 4 ? 1e-5 : 0.02;
    const Stream s;
    const int rows = 3, cols = 301;
    const auto values = narrowed<T>(normals(rows * cols));
    const auto at = [&](int r, int c) {
        return double(static_cast<float>(values[static_cast<std::size_t>(r * cols + c)]));
    };
    const Buffer<T> x(values), normal(values.size()), soft(values.size()), turned(values.size());
    const Buffer<float> sums(rows), mean(rows);
    row_sum<T>(x, sums, rows, cols, s);
    normalize<T>(x, normal, mean, rows, cols, 1e-5f, s);
    softmax<T>(x, soft, rows, cols, s);
    transpose<T>(x, turned, rows, cols, s);
    s.wait();
    const auto got_normal = normal.get(), got_soft = soft.get(), got_turned = turned.get();
    for (int r = 0; r < rows; ++r) {
        double sum = 0, squares = 0, exponentials = 0;
        for (int c = 0; c < cols; ++c) sum += at(r, c);
        for (int c = 0; c < cols; ++c) squares += std::pow(at(r, c) - sum / cols, 2);
        for (int c = 0; c < cols; ++c) exponentials += std::exp(at(r, c));
        CHECK(sums.get()[static_cast<std::size_t>(r)] == Approx(sum).margin(1e-3));
        for (int c = 0; c < cols; c += 37) {
            const auto i = static_cast<std::size_t>(r * cols + c);
            const double expected = (at(r, c) - sum / cols) / std::sqrt(squares / cols + 1e-5);
            CHECK(static_cast<float>(got_normal[i]) == Approx(expected).margin(tolerance));
            CHECK(static_cast<float>(got_soft[i]) ==
                  Approx(std::exp(at(r, c)) / exponentials).margin(tolerance));
            CHECK(static_cast<float>(got_turned[static_cast<std::size_t>(c * rows + r)]) == Approx(at(r, c)));
        }
    }
}
