#include "codec/gzip.h"

#include <algorithm>
#include <limits>
#include <zlib.h>

#include "base/check.h"

namespace varda::codec {
namespace {

constexpr int kGzipWindow = 15 + 16;  // the largest window, with gzip framing
constexpr std::size_t kStepBytes = 64 << 10;

class ZlibDecoder final : public GzipDecoder {
 public:
  ZlibDecoder() { CHECK(inflateInit2(&stream_, kGzipWindow) == Z_OK); }
  ~ZlibDecoder() override { inflateEnd(&stream_); }
  ZlibDecoder(const ZlibDecoder&) = delete;
  ZlibDecoder& operator=(const ZlibDecoder&) = delete;

  Result<std::size_t> feed(std::string_view bytes, std::string& out, std::size_t out_max) override {
    bytes = bytes.substr(0, std::numeric_limits<uInt>::max());
    // zlib does not write to its input, although the type is not const.
    stream_.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(bytes.data()));
    stream_.avail_in = static_cast<uInt>(bytes.size());
    while (!ended_ && out.size() < out_max) {
      const std::size_t before = out.size();
      const std::size_t room = std::min(kStepBytes, out_max - before);
      out.resize(before + room);
      stream_.next_out = reinterpret_cast<Bytef*>(out.data()) + before;
      stream_.avail_out = static_cast<uInt>(room);
      const int code = inflate(&stream_, Z_NO_FLUSH);
      out.resize(before + room - stream_.avail_out);
      if (code == Z_STREAM_END) {
        ended_ = true;
      } else if (code == Z_BUF_ERROR ||
                 (code == Z_OK && stream_.avail_in == 0 && stream_.avail_out > 0)) {
        break;  // all input is consumed
      } else if (code != Z_OK) {
        return Error(Code::kCorrupt, "damaged gzip data");
      }
    }
    return bytes.size() - stream_.avail_in;
  }

  bool ended() const override { return ended_; }

 private:
  z_stream stream_{};
  bool ended_ = false;
};

}  // namespace

std::unique_ptr<GzipDecoder> GzipDecoder::create() { return std::make_unique<ZlibDecoder>(); }

std::string gzip(std::string_view bytes) {
  CHECK(bytes.size() < std::numeric_limits<uInt>::max() / 2);
  z_stream stream{};
  CHECK(deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, kGzipWindow, 8,
                     Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&stream, static_cast<uLong>(bytes.size())), '\0');
  stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(out.size() - stream.avail_out);
  deflateEnd(&stream);
  return out;
}

}  // namespace varda::codec
