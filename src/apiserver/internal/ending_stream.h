// Wraps a stream that may never end (a followed log). It ends when the server stops, so that the
// client receives a complete body.
#pragma once

#include <memory>

#include "apiserver/internal/core.h"
#include "net/http.h"

namespace varda::apiserver {

class EndingStream final : public net::BodyStream {
 public:
  EndingStream(Core& core, std::unique_ptr<net::BodyStream> inner)
      : core_(core), inner_(std::move(inner)) {}
  ~EndingStream() override { cell_->clear(); }

  std::optional<std::string> read() override {
    std::optional<std::string> piece = inner_->read();
    if (piece && piece->empty() && core_.stopping) return std::nullopt;
    return piece;
  }
  void on_ready(std::function<void()> wake) override {
    cell_->set(wake);
    core_.sessions.on_stop(cell_);
    inner_->on_ready(std::move(wake));
  }

 private:
  Core& core_;
  const std::shared_ptr<WakeCell> cell_ = std::make_shared<WakeCell>();
  const std::unique_ptr<net::BodyStream> inner_;
};

}  // namespace varda::apiserver
