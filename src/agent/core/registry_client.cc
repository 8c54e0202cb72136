#include "agent/core/registry_client.h"

#include <utility>

namespace varda::agent::core {
namespace {

class ReceivedText final : public net::BodyReader {
 public:
  explicit ReceivedText(std::string text) : text_(std::move(text)) {}
  Result<std::optional<std::string>> read() override {
    if (text_.empty()) return std::optional<std::string>();
    return std::optional(std::exchange(text_, {}));
  }

 private:
  std::string text_;
};

}  // namespace

Result<net::ClientResponse> RegistryClient::send(const Context& ctx, net::ClientRequest request) {
  TRY(Answer answer, api_.exchange(ctx, std::move(request.method), std::move(request.url),
                                   std::move(request.headers), std::move(request.body)));
  return net::ClientResponse{.status = answer.status,
                             .headers = std::move(answer.headers),
                             .body = std::make_unique<ReceivedText>(std::move(answer.body))};
}

}  // namespace varda::agent::core
