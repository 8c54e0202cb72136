#include <algorithm>
#include <deque>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/caught.h"
#include "base/log.h"
#include "base/mutex.h"
#include "net/grpc_server.h"

namespace varda::net {

struct GrpcThreads::Impl {
  struct Job {
    std::shared_ptr<GrpcCall> call;
    std::stop_source stop;
    std::function<void(const Context& ctx)> run;
  };

  explicit Impl(Options o) : options(o) {}

  void submit(Job job) EXCLUDES(mutex) {
    std::shared_ptr<GrpcCall> refused = job.call;
    {
      const MutexLock lock(mutex);
      if (!stopping && queue.size() < options.queue_max) {
        queue.push_back(std::move(job));
        refused.reset();
      }
    }
    if (!refused) return ready.notify_one();
    refused->finish(Error(Code::kExhausted, "too many calls are waiting"));
  }

  void work() EXCLUDES(mutex) {
    while (true) {
      mutex.lock();
      while (queue.empty() && !stopping) ready.wait(mutex);
      if (stopping) {
        mutex.unlock();
        return;
      }
      Job job = std::move(queue.front());
      queue.pop_front();
      running.insert(&job);
      mutex.unlock();
      Context ctx(job.stop.get_token());
      if (job.call->request().deadline) ctx = ctx.with_deadline(*job.call->request().deadline);
      contain("a gRPC handler threw", [&] { job.run(ctx); });
      // Without effect after the handler's own status.
      job.call->finish(Error(Code::kInternal, "the handler failed"));
      const MutexLock lock(mutex);
      running.erase(&job);
    }
  }

  const Options options;
  Mutex mutex;
  CondVar ready;
  bool stopping GUARDED_BY(mutex) = false;
  std::deque<Job> queue GUARDED_BY(mutex);
  std::set<Job*> running GUARDED_BY(mutex);
  std::vector<std::thread> threads;
};

namespace grpc_threads {

class UnaryEvents final : public GrpcEvents {
 public:
  UnaryEvents(std::shared_ptr<GrpcThreads::Impl> pool,
              std::shared_ptr<const GrpcThreads::Unary> handler, std::shared_ptr<GrpcCall> call)
      : pool_(std::move(pool)), handler_(std::move(handler)), call_(std::move(call)) {
    call_->read();
  }

  void on_message(GrpcMessage message) override {
    if (message_) return call_->finish(Error(Code::kInvalid, "the call has a second message"));
    message_ = std::move(message);
    call_->read();
  }

  void on_end() override {
    if (!message_) return call_->finish(Error(Code::kInvalid, "the call has no message"));
    pool_->submit({.call = call_,
                   .stop = stop_,
                   .run = [handler = handler_, call = call_,
                           message = std::make_shared<GrpcMessage>(std::move(*message_))](
                              const Context& ctx) {
                     auto answer = (*handler)(ctx, call->request(), message->bytes);
                     if (!answer.ok()) return call->finish(std::move(answer).error());
                     (void)call->send(std::move(answer).value());
                     call->finish({});
                   }});
  }

  void on_done(const Status&) override { stop_.request_stop(); }

 private:
  const std::shared_ptr<GrpcThreads::Impl> pool_;
  const std::shared_ptr<const GrpcThreads::Unary> handler_;
  const std::shared_ptr<GrpcCall> call_;
  std::stop_source stop_;
  std::optional<GrpcMessage> message_;
};

/// Joins the events of a call and the thread of its handler.
struct Exchange {
  Mutex mutex;
  CondVar changed;
  std::optional<GrpcMessage> message GUARDED_BY(mutex);
  bool asked GUARDED_BY(mutex) = false;
  bool ended GUARDED_BY(mutex) = false;
  bool drained GUARDED_BY(mutex) = false;
};

class StreamingEvents final : public GrpcEvents {
 public:
  StreamingEvents(std::shared_ptr<Exchange> exchange, std::stop_source stop)
      : exchange_(std::move(exchange)), stop_(std::move(stop)) {}

  void on_message(GrpcMessage message) override {
    {
      const MutexLock lock(exchange_->mutex);
      exchange_->message = std::move(message);
    }
    exchange_->changed.notify_all();
  }
  void on_end() override { set(&Exchange::ended); }
  void on_drained() override { set(&Exchange::drained); }
  void on_done(const Status&) override { stop_.request_stop(); }

 private:
  void set(bool Exchange::*flag) {
    {
      const MutexLock lock(exchange_->mutex);
      (*exchange_).*flag = true;
    }
    exchange_->changed.notify_all();
  }
  const std::shared_ptr<Exchange> exchange_;
  std::stop_source stop_;
};

class StreamOnThread final : public GrpcStream {
 public:
  StreamOnThread(std::shared_ptr<Exchange> exchange, std::shared_ptr<GrpcCall> call,
                 const Context& ctx)
      : exchange_(std::move(exchange)), call_(std::move(call)), ctx_(ctx) {}

  const GrpcRequest& request() const override { return call_->request(); }
  const Context& context() const override { return ctx_; }

  Result<std::optional<GrpcMessage>> read() override {
    const MutexLock lock(exchange_->mutex);
    if (!exchange_->asked && !exchange_->ended) {
      exchange_->asked = true;
      call_->read();
    }
    while (!exchange_->message && !exchange_->ended) {
      TRY_VOID(ctx_.check());
      wait();
    }
    if (!exchange_->message) return std::optional<GrpcMessage>();
    exchange_->asked = false;
    return std::exchange(exchange_->message, std::nullopt);
  }

  Status write(std::string message) override {
    const auto shared = std::make_shared<const std::string>(std::move(message));
    while (true) {
      TRY_VOID(ctx_.check());
      const MutexLock lock(exchange_->mutex);
      exchange_->drained = false;
      const Status sent = call_->send(shared);
      if (sent.ok() || sent.error().code() != Code::kExhausted) return sent;
      while (!exchange_->drained) {
        TRY_VOID(ctx_.check());
        wait();
      }
    }
  }

 private:
  void wait() REQUIRES(exchange_->mutex) {
    if (ctx_.deadline()) {
      (void)exchange_->changed.wait_until(exchange_->mutex, ctx_.stop_token(), *ctx_.deadline());
    } else {
      exchange_->changed.wait(exchange_->mutex, ctx_.stop_token());
    }
  }

  const std::shared_ptr<Exchange> exchange_;
  const std::shared_ptr<GrpcCall> call_;
  const Context ctx_;
};

}  // namespace grpc_threads

GrpcThreads::GrpcThreads(Options options) : impl_(std::make_shared<Impl>(options)) {
  for (std::size_t i = 0; i < std::max<std::size_t>(options.threads, 1); ++i)
    impl_->threads.emplace_back([impl = impl_.get()] { impl->work(); });
}

GrpcThreads::~GrpcThreads() {
  std::deque<Impl::Job> waiting;
  {
    const MutexLock lock(impl_->mutex);
    impl_->stopping = true;
    waiting.swap(impl_->queue);
    for (Impl::Job* job : impl_->running) job->stop.request_stop();
  }
  impl_->ready.notify_all();
  for (auto& job : waiting) job.call->finish(Error(Code::kUnavailable, "the server stops"));
  for (auto& thread : impl_->threads) thread.join();
}

GrpcHandler GrpcThreads::unary(Unary handler) {
  return [impl = impl_, shared = std::make_shared<const Unary>(std::move(handler))](
             std::shared_ptr<GrpcCall> call) -> std::unique_ptr<GrpcEvents> {
    return std::make_unique<grpc_threads::UnaryEvents>(impl, shared, std::move(call));
  };
}

GrpcHandler GrpcThreads::streaming(Streaming handler) {
  return [impl = impl_, shared = std::make_shared<const Streaming>(std::move(handler))](
             std::shared_ptr<GrpcCall> call) -> std::unique_ptr<GrpcEvents> {
    auto exchange = std::make_shared<grpc_threads::Exchange>();
    std::stop_source stop;
    impl->submit({.call = call, .stop = stop, .run = [shared, exchange, call](const Context& ctx) {
                    grpc_threads::StreamOnThread stream(exchange, call, ctx);
                    call->finish((*shared)(stream));
                  }});
    return std::make_unique<grpc_threads::StreamingEvents>(std::move(exchange), std::move(stop));
  };
}

}  // namespace varda::net
