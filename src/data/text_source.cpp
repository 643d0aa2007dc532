// Text as tokens: each byte is one. Several files follow each other without anything between them.
#include <algorithm>
#include <optional>
#include <vector>

#include "data/byte_stream.hpp"
#include "data/row_source.hpp"
#include "trireme/base/error.hpp"

namespace trireme {
namespace {

constexpr std::size_t piece_bytes = std::size_t{1} << 20;

class TextSource final : public RowSource {
public:
    explicit TextSource(const ImportOptions& options) : inputs_(options.inputs) {
        if (options.dtype != "auto" && options.dtype != "uint8")
            throw usage_error("dtype: expected uint8 for text, a byte for each token, found '" +
                              options.dtype + "'");
        if (options.shape.rank() != 0)
            throw usage_error("shape: expected none for text, found " + options.shape.text());
        table_.x_name = "/tokens";
        table_.x_type = DType::u8;
        table_.contiguous_split = true;
        look_through();
    }

    void read(std::int64_t rows, void* x, void*) override {
        auto* to = static_cast<std::uint8_t*>(x);
        for (std::int64_t left = rows; left > 0;) {
            if (!stream_) {
                if (next_ == inputs_.size())
                    throw data_error(
                        inputs_.back() +
                        ": expected the same text as a moment ago, found less: the file has changed");
                stream_.emplace(inputs_[next_++]);
            }
            const std::size_t got = stream_->read(to, static_cast<std::size_t>(left));
            to += got;
            left -= static_cast<std::int64_t>(got);
            if (left > 0) stream_.reset();
        }
    }

private:
    void look_through() {
        std::vector<std::uint8_t> piece(piece_bytes);
        std::uint8_t largest = 0;
        for (const std::string& path : inputs_) {
            ByteStream stream(path);
            while (const std::size_t got = stream.read(piece.data(), piece.size())) {
                table_.rows += static_cast<std::int64_t>(got);
                largest = std::max(largest, *std::max_element(piece.data(), piece.data() + got));
            }
        }
        if (table_.rows == 0) throw data_error(inputs_[0] + ": expected text, found an empty file");
        table_.classes = largest + 1;
    }

    std::vector<std::string> inputs_;
    std::optional<ByteStream> stream_;
    std::size_t next_ = 0;  ///< input to be opened
};

}  // namespace

bool looks_like_text(const std::string& path) {
    return path.ends_with(".txt") || path.ends_with(".txt.gz");
}

std::unique_ptr<RowSource> open_text(const ImportOptions& options) {
    return std::make_unique<TextSource>(options);
}

}  // namespace trireme
