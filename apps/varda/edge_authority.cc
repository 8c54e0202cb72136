#include "edge_authority.h"

#include <chrono>
#include <utility>

#include "base/log.h"
#include "gateway/authority.h"
#include "net/certificates.h"
#include "os/file_system.h"
#include "resolved_file.h"

namespace varda::app {
namespace {

constexpr std::chrono::seconds kUntilKnown{5}, kThenEvery{300}, kReadTime{10};
constexpr std::uint64_t kCertificateBytesMax = 1u << 20;

}  // namespace

Result<std::unique_ptr<EdgeAuthority>> EdgeAuthority::open(const std::filesystem::path& file,
                                                           const kube::Client& client) {
  std::unique_ptr<EdgeAuthority> out(new EdgeAuthority(file, client));
  if (!file.empty()) {
    auto pem = out->read(Context::background());
    // A volume of an optional ConfigMap is empty until the ConfigMap exists.
    if (!pem.ok() && pem.error().code() != Code::kNotFound)
      return std::move(pem).error().context("--edge-authority");
    const MutexLock lock(out->mutex_);
    if (pem.ok()) out->pem_ = *std::move(pem);
  }
  out->thread_ =
      std::jthread([raw = out.get()](const std::stop_token& stop) { raw->follow(Context(stop)); });
  return out;
}

EdgeAuthority::~EdgeAuthority() = default;

std::string EdgeAuthority::pem() const {
  const MutexLock lock(mutex_);
  return pem_;
}

Result<std::string> EdgeAuthority::read(const Context& ctx) const {
  if (file_.empty()) return gateway::published_ca(ctx.with_timeout(kReadTime), client_);
  TRY(std::string pem,
      os::read_file(os::real_file_system(), followed(file_), kCertificateBytesMax));
  TRY_VOID(net::certificate_facts(pem).context(file_.string()));
  return pem;
}

void EdgeAuthority::follow(const Context& ctx) {
  std::string logged;
  while (!ctx.done()) {
    auto pem = read(ctx);
    bool known = false;
    if (pem.ok()) {
      const MutexLock lock(mutex_);
      if (pem_ != *pem) log::info("authority of the edge found");
      pem_ = *std::move(pem);
      known = true;
      logged.clear();
    } else if (!ctx.done() && pem.error().code() != Code::kNotFound &&
               pem.error().message() != logged) {
      logged = pem.error().message();
      log::warn("authority of the edge not readable, retrying", {{"error", logged}});
    }
    if (!ctx.sleep_for(known ? Duration(kThenEvery) : Duration(kUntilKnown)).ok()) return;
  }
}

}  // namespace varda::app
