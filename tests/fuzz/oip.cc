// Inference requests, responses and metadata: untrusted bytes that become tensors.
//
// Parsed messages are written and parsed again with the same tensors.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "oip/envelope.h"
#include "oip/infer.h"
#include "oip/metadata.h"
#include "oip/route.h"

namespace {

using namespace varda;  // NOLINT: a program of one file

void check_same(const std::vector<tensor::Named>& a, const std::vector<tensor::Named>& b) {
  CHECK(a.size() == b.size());
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK(a[i].name == b[i].name && a[i].tensor.dtype() == b[i].tensor.dtype() &&
          a[i].tensor.shape() == b[i].tensor.shape());
    const auto left = a[i].tensor.bytes(), right = b[i].tensor.bytes();
    CHECK(left.size() == right.size() && std::equal(left.begin(), left.end(), right.begin()));
  }
}

void request(const std::shared_ptr<const std::string>& body,
             std::optional<std::string_view> length) {
  const auto parsed = oip::parse_infer_request(body, length);
  if (!parsed.ok()) return;
  const oip::Message written = oip::write_infer_request(*parsed);
  const std::string json_length = std::to_string(written.json_length.value_or(0));
  const auto again =
      oip::parse_infer_request(std::make_shared<const std::string>(written.body), json_length);
  CHECK(again.ok());
  check_same(parsed->inputs, again->inputs);
}

void response(const std::shared_ptr<const std::string>& body,
              std::optional<std::string_view> length) {
  const auto parsed = oip::parse_infer_response(body, length);
  if (!parsed.ok()) return;
  const std::vector<oip::Encoding> binary(parsed->outputs.size(), oip::Encoding::kBinary);
  const oip::Message written = oip::write_infer_response(*parsed, binary);
  std::optional<std::string> json_length;
  if (written.json_length) json_length = std::to_string(*written.json_length);
  const auto again =
      oip::parse_infer_response(std::make_shared<const std::string>(written.body), json_length);
  CHECK(again.ok());
  check_same(parsed->outputs, again->outputs);
}

// An opened message can be resealed with another name and opened again, with the same tensors.
void envelope(const std::shared_ptr<const std::string>& body,
              std::optional<std::string_view> length) {
  const auto opened = oip::open_infer_response(body, length);
  if (!opened.ok()) return;
  const oip::Message sealed =
      oip::reseal(*opened, "m", "1", codec::Json::object({{"tier", "cloud"}}));
  std::optional<std::string> json_length;
  if (sealed.json_length) json_length = std::to_string(*sealed.json_length);
  const auto again =
      oip::open_infer_response(std::make_shared<const std::string>(sealed.body), json_length);
  CHECK(again.ok());
  CHECK(again->model_name == "m" && again->id == opened->id && again->outputs == opened->outputs &&
        again->binary == opened->binary);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto body = std::make_shared<const std::string>(reinterpret_cast<const char*>(data), size);
  request(body, std::nullopt);
  response(body, std::nullopt);
  envelope(body, std::nullopt);
  // For inputs with binary tensors, the JSON ends with the first line.
  const std::string length = std::to_string(std::min(body->find('\n'), body->size()));
  request(body, length);
  response(body, length);
  envelope(body, length);
  (void)oip::parse_model_metadata(*body);
  (void)oip::parse_index(*body);
  (void)oip::parse_route("GET", *body);
  return 0;
}
