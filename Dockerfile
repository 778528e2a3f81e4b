# An image of the command line, which serves the HTTP API unless it is told otherwise.
FROM node:24-bookworm-slim AS build
WORKDIR /build
# better-sqlite3 is compiled where there is no prebuilt binary.
RUN apt-get update \
  && apt-get install --yes --no-install-recommends build-essential python3 \
  && rm -rf /var/lib/apt/lists/*
COPY package.json package-lock.json .npmrc ./
RUN npm ci --ignore-scripts
COPY tsconfig.json tsconfig.build.json ./
COPY src ./src
RUN npm run build \
  && npm rebuild better-sqlite3 \
  && npm prune --omit=dev --ignore-scripts
# The drivers are optional, so that npm leaves them out; from here they are found beside the app.
RUN npm install --prefix /drivers --ignore-scripts pg@8.23.1 @nats-io/transport-node@3.4.0

FROM node:24-bookworm-slim
# From outside of the container only what listens beyond loopback is reached. That needs certificates with tokens, client
# certificates, or consent, and without any of them the server says so and does not start.
ENV NODE_ENV=production
ENV MILLRACE_BIND=0.0.0.0:8080
WORKDIR /app
COPY --from=build /build/package.json ./
COPY --from=build /build/node_modules ./node_modules
COPY --from=build /build/dist ./dist
COPY --from=build /drivers/node_modules /node_modules
COPY deploy/health.mjs ./
RUN ln -s /app/dist/cli/main.js /usr/local/bin/millrace \
  && mkdir /data \
  && chown node:node /data
USER node
WORKDIR /data
VOLUME /data
EXPOSE 8080
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s --retries=3 \
  CMD ["node", "/app/health.mjs"]
ENTRYPOINT ["millrace"]
CMD ["server"]
