# A static binary in an empty image: no shell, no libc, nothing to update but the binary.
FROM rust:1.95-alpine AS build
RUN apk add --no-cache musl-dev
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY src src
RUN cargo build --release --locked --bin volery

FROM scratch
# For Prometheus and API servers behind https.
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /src/target/release/volery /volery
USER 65532:65532
ENTRYPOINT ["/volery"]
