// The inputs of an API client: watch frames, lists and errors of a server, and kubeconfig files.
//
// The first byte selects the cuts of the answer; every cut gives the same frames.
#include <string>
#include <vector>

#include "base/check.h"
#include "codec/yaml.h"
#include "input.h"
#include "kube/client.h"
#include "kube/config.h"

namespace {

using namespace varda;  // NOLINT: a program of one file

class Body final : public net::BodyReader {
 public:
  Body(std::string_view bytes, std::size_t step) : left_(bytes), step_(step) {}
  Result<std::optional<std::string>> read() override {
    if (left_.empty()) return std::optional<std::string>();
    std::string out(left_.substr(0, step_));
    left_.remove_prefix(out.size());
    return std::optional(std::move(out));
  }

 private:
  std::string_view left_;
  const std::size_t step_;
};

/// Answers every request with the same bytes.
class Server final : public net::HttpClient {
 public:
  Server(std::string_view bytes, std::size_t step, int status)
      : bytes_(bytes), step_(step), status_(status) {}
  Result<net::ClientResponse> send(const Context&, net::ClientRequest) override {
    net::ClientResponse out{
        .status = status_, .headers = {{"Content-Type", "application/json"}}, .body = nullptr};
    out.body = std::make_unique<Body>(bytes_, step_);
    return out;
  }

 private:
  const std::string_view bytes_;
  const std::size_t step_;
  const int status_;
};

const meta::Resource kPods{
    .group = "", .version = "v1", .kind = "Pod", .plural = "pods", .namespaced = true};

std::vector<std::string> frames(std::string_view bytes, std::size_t step) {
  std::vector<std::string> out;
  Server server(bytes, step, 200);
  const kube::Client client(server, {});
  auto watch =
      client.watch(Context(), kPods,
                   {.ns = "", .label_selector = "", .field_selector = "", .resource_version = "1"});
  CHECK(watch.ok());
  while (out.size() < 10'000) {
    const auto event = (*watch)->next();
    if (!event.ok()) {
      out.push_back("error " + std::to_string(static_cast<int>(event.error().code())));
      break;
    }
    if (!*event) break;
    out.push_back(std::to_string(static_cast<int>((*event)->type)) + (*event)->resource_version +
                  codec::write_json((*event)->object));
  }
  return out;
}

void kubeconfig(std::string_view text) {
  const auto config = kube::parse_kubeconfig(text, "/nonexistent");
  if (!config.ok()) return;
  const auto again = kube::parse_kubeconfig(kube::write_kubeconfig(*config), "/nonexistent");
  CHECK(again.ok());
  CHECK(again->server == config->server && again->token == config->token &&
        again->ns == config->ns);
  CHECK(again->tls.ca_pem == config->tls.ca_pem && again->tls.key_pem == config->tls.key_pem &&
        again->tls.certificate_pem == config->tls.certificate_pem);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const std::size_t step = input.byte() % 64 + 1;
  const std::string_view text = input.rest();
  CHECK(frames(text, step) == frames(text, size + 1));
  for (const int status : {200, 409, 500}) {
    Server server(text, step, status);
    const kube::Client client(server, {});
    const auto pod = client.get(Context(), kPods, {"default", "a"});
    if (status >= 400) CHECK(!pod.ok() && !pod.error().message().empty());
    (void)client.list(Context(), kPods);
  }
  // This test covers inline credentials; paths to files of this machine are skipped.
  if (text.find("/dev") == std::string_view::npos) kubeconfig(text);
  return 0;
}
