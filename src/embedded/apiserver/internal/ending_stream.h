// Wraps a stream that may never end (a followed log). It ends when the server stops, so that the
// client receives a complete body.
#pragma once

#include <memory>

#include "apiserver/internal/core.h"
#include "net/http.h"

namespace varda::apiserver {

class EndingStream final : public net::BodyStream, net::Timers::Timed {
 public:
  EndingStream(Core& core, std::unique_ptr<net::BodyStream> inner)
      : core_(core), inner_(std::move(inner)) {}
  ~EndingStream() override { core_.timers.remove(*this); }

  std::optional<std::string> read() override {
    std::optional<std::string> piece = inner_->read();
    if (piece && piece->empty() && core_.stopping) return std::nullopt;
    return piece;
  }
  void on_ready(std::function<void()> wake) override {
    wake_ = wake;
    core_.timers.add(*this);  // the server's stop wakes it
    inner_->on_ready(std::move(wake));
  }

 private:
  void due() override { wake_(); }

  Core& core_;
  std::function<void()> wake_;
  const std::unique_ptr<net::BodyStream> inner_;
};

}  // namespace varda::apiserver
