#include "codec/internal/jpeg.h"

#include <memory>
#include <string>
#include <turbojpeg.h>
#include <type_traits>
#include <utility>

namespace varda::codec::internal {
namespace {

using Handle = std::unique_ptr<std::remove_pointer_t<tjhandle>, int (*)(tjhandle)>;

struct Header {
  int width = 0;
  int height = 0;
  int subsampling = 0;
  int colour_space = 0;
};

Result<Handle> decompressor() {
  Handle handle(tjInitDecompress(), tjDestroy);
  if (handle == nullptr) return Error(Code::kExhausted, "no memory to decode a JPEG");
  return handle;
}

Error bad(const Handle& handle) {
  return Error(Code::kInvalid, std::string("JPEG: ") + tjGetErrorStr2(handle.get()));
}

const unsigned char* data(std::string_view bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

Result<Header> header_of(const Handle& handle, std::string_view bytes) {
  Header out;
  if (tjDecompressHeader3(handle.get(), data(bytes), bytes.size(), &out.width, &out.height,
                          &out.subsampling, &out.colour_space) != 0)
    return bad(handle);
  if (out.width <= 0 || out.height <= 0) return Error(Code::kInvalid, "JPEG: no pixels");
  return out;
}

constexpr std::size_t kScansMax = 32;

// Counts scans up to the end of the image. Like the library, reads markers only; the content of
// segments (a thumbnail) does not count.
std::size_t scans_of(std::string_view bytes) {
  std::size_t scans = 0;
  for (std::size_t at = bytes.find('\xff', 2); at < bytes.size(); at = bytes.find('\xff', at)) {
    while (at < bytes.size() && bytes[at] == '\xff')
      ++at;  // any number of 0xff may precede a marker's code
    if (at + 2 >= bytes.size()) break;
    const auto code = static_cast<unsigned char>(bytes[at]);
    if (code == 0xd9) break;                                       // end of image
    if (code <= 0x01 || (code >= 0xd0 && code <= 0xd8)) continue;  // without a segment; 0: data
    if (code == 0xda) ++scans;
    at += 1 + (static_cast<unsigned char>(bytes[at + 1]) << 8 |
               static_cast<unsigned char>(bytes[at + 2]));
  }
  return scans;
}

}  // namespace

Result<ImageHeader> jpeg_header(std::string_view bytes) {
  TRY(const Handle handle, decompressor());
  TRY(const Header header, header_of(handle, bytes));
  return ImageHeader{ImageFormat::kJpeg, static_cast<std::size_t>(header.width),
                     static_cast<std::size_t>(header.height)};
}

Result<Image> decode_jpeg(std::string_view bytes, std::size_t pixels_max,
                          std::vector<std::uint8_t> memory) {
  TRY(const Handle handle, decompressor());
  TRY(const Header header, header_of(handle, bytes));
  Image out;
  out.width = static_cast<std::size_t>(header.width);
  out.height = static_cast<std::size_t>(header.height);
  if (out.width * out.height > pixels_max) {
    return Error(Code::kInvalid, "JPEG: " + std::to_string(out.width) + "x" +
                                     std::to_string(out.height) + " pixels are too many");
  }
  if (header.colour_space == TJCS_CMYK || header.colour_space == TJCS_YCCK)
    return Error(Code::kUnsupported, "JPEG: in CMYK, for print; RGB and grey are read");
  // Each scan of a progressive file costs a pass over the whole image, and needs only a dozen
  // bytes. Requests limit the sum of pixels, so the number of scans is limited here.
  if (scans_of(bytes) > kScansMax)
    return Error(Code::kInvalid, "JPEG: it has more than " + std::to_string(kScansMax) + " scans");
  const bool grey = header.colour_space == TJCS_GRAY;
  out.channels = grey ? 1 : 3;
  out.pixels = std::move(memory);
  out.pixels.resize(out.width * out.height * out.channels);
  // A warning means a truncated or damaged file, which the library would pad.
  constexpr int kFlags = TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS | TJFLAG_ACCURATEDCT;
  if (tjDecompress2(handle.get(), data(bytes), bytes.size(), out.pixels.data(), header.width, 0,
                    header.height, grey ? TJPF_GRAY : TJPF_RGB, kFlags) != 0) {
    return bad(handle);
  }
  return out;
}

}  // namespace varda::codec::internal
