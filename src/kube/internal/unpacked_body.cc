#include "kube/internal/unpacked_body.h"

#include <utility>

#include "codec/gzip.h"

namespace varda::kube::internal {
namespace {

constexpr std::size_t kPieceBytes = 64 << 10;

class GzipBody final : public net::BodyReader {
 public:
  explicit GzipBody(std::unique_ptr<net::BodyReader> packed) : packed_(std::move(packed)) {}

  Result<std::optional<std::string>> read() override {
    std::string out;
    while (out.empty() && !decoder_->ended()) {
      if (at_ == input_.size()) {
        TRY(std::optional<std::string> more, packed_->read());
        if (!more) {
          if (!begun_) return std::optional<std::string>();  // an empty body
          return Error(Code::kUnavailable, "the gzip stream ended early");
        }
        input_ = std::move(*more);
        at_ = 0;
        begun_ = true;
      }
      TRY(const std::size_t taken,
          decoder_->feed(std::string_view(input_).substr(at_), out, kPieceBytes));
      at_ += taken;
    }
    if (!out.empty()) return std::optional<std::string>(std::move(out));
    // Read to the end of the body, so that the connection can be reused.
    while (true) {
      TRY(const std::optional<std::string> rest, packed_->read());
      if (!rest) return std::optional<std::string>();
    }
  }

 private:
  const std::unique_ptr<net::BodyReader> packed_;
  const std::unique_ptr<codec::GzipDecoder> decoder_ = codec::GzipDecoder::create();
  std::string input_;
  std::size_t at_ = 0;
  bool begun_ = false;
};

}  // namespace

Result<std::unique_ptr<net::BodyReader>> unpacked(net::ClientResponse response) {
  const auto encoding = response.headers.find("Content-Encoding");
  if (!encoding || encoding->empty() || *encoding == "identity") return std::move(response.body);
  if (*encoding == "gzip" || *encoding == "x-gzip")
    return std::unique_ptr<net::BodyReader>(std::make_unique<GzipBody>(std::move(response.body)));
  return Error(Code::kCorrupt, "the answer has content-encoding \"" +
                                   std::string(encoding->substr(0, 40)) +
                                   "\", which was not requested");
}

}  // namespace varda::kube::internal
