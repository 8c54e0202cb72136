#include "artifact/internal/plain_file.h"

#include <algorithm>
#include <array>

#include "net/url.h"

namespace varda::artifact {
namespace {

constexpr std::array<std::string_view, 29> kSuffixes = {
    "bin",         "caffemodel", "ckpt",   "engine", "gguf",    "h5",   "hdf5",        "joblib",
    "json",        "keras",      "mindir", "npy",    "npz",     "onnx", "params",      "pb",
    "pbtxt",       "pdmodel",    "pkl",    "plan",   "pt",      "pth",  "safetensors", "tflite",
    "torchscript", "trt",        "txt",    "ubj",    "weights",
};

}  // namespace

std::string plain_file_name(std::string_view url) {
  const auto parsed = net::Url::parse(std::string(url));
  if (!parsed.ok()) return "";
  std::string_view path = parsed->target;
  path = path.substr(0, path.find_first_of("?#"));
  std::string_view name = path.substr(path.rfind('/') + 1);
  const auto dot = name.rfind('.');
  if (dot == std::string_view::npos || dot == 0) return "";
  std::string suffix(name.substr(dot + 1));
  std::transform(suffix.begin(), suffix.end(), suffix.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (std::find(kSuffixes.begin(), kSuffixes.end(), suffix) == kSuffixes.end()) return "";
  auto decoded = net::percent_decode(name);
  return decoded.ok() && decoded->find('/') == std::string::npos ? *decoded : std::string(name);
}

}  // namespace varda::artifact
