// Posts a body of known length and a chunked one, one after the other, with the JDK's client and its defaults.
import java.io.ByteArrayInputStream;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublisher;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;

public class Post {
    public static void main(String[] arguments) throws Exception {
        HttpClient client = HttpClient.newHttpClient();
        byte[] body = "hello".repeat(1000).getBytes();
        BodyPublisher[] publishers = {
            BodyPublishers.ofByteArray(body), BodyPublishers.ofInputStream(() -> new ByteArrayInputStream(body))
        };
        for (BodyPublisher publisher : publishers) {
            HttpRequest request = HttpRequest.newBuilder(URI.create(arguments[0])).POST(publisher).build();
            HttpResponse<String> response = client.send(request, HttpResponse.BodyHandlers.ofString());
            System.out.println(response.statusCode() + " " + response.version() + " " + response.body());
        }
    }
}
